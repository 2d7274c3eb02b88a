"""Requests that come together are answered together; one that fails does not fail the others."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

R = TypeVar("R")
A = TypeVar("A")


def together_or_alone(act: Callable[[Sequence[R]], Sequence[A | Exception]], requests: Sequence[R]) -> list[Any]:
    """`act(requests)`, an answer or error for each request; where that raises, each request is tried by itself."""
    try:
        return [*act(requests)]
    except Exception as error:  # perhaps of an observation that no other request is to suffer from
        if len(requests) == 1:
            return [error]
        return [answer for each in requests for answer in together_or_alone(act, [each])]


def settle(futures: Iterable[Future[A]], answers: Iterable[A | Exception]) -> None:
    """Give each future its answer, or raise it there; not where the client is gone and nobody waits."""
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
