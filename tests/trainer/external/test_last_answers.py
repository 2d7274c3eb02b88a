"""Requests that are sent again are done once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from reef.errors import ExternalEpisodeError
from reef.external.last_answers import LastAnswers, numbered
from reef.external.wire import MessageError

DONE: list[str] = []


class Body:
    """Of a request."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    del DONE[:]


async def work(name: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    DONE.append(name)
    return name


async def failing() -> str:
    DONE.append("failed")
    raise ZeroDivisionError


def results(*requests: tuple[str, Coroutine[Any, Any, str]], together: bool = False, most: int = 10) -> list[Any]:
    async def ask() -> list[Any]:
        answers: LastAnswers[str] = LastAnswers(most)
        asked = [answers.once(request, each) for request, each in requests]
        if together:
            return await asyncio.gather(*asked)
        return [(await asyncio.gather(each, return_exceptions=True))[0] for each in asked]

    return asyncio.run(ask())


def test_a_repeat_gets_the_answer_of_the_first() -> None:
    assert results(("a/1", work("x")), ("a/1", work("y")), ("b/1", work("z"))) == ["x", "x", "z"]
    assert DONE == ["x", "z"]


def test_a_repeat_waits_for_the_first() -> None:
    assert results(("a/1", work("x", 0.05)), ("a/1", work("y")), together=True) == ["x", "x"]
    assert DONE == ["x"]


def test_what_failed_is_done_again() -> None:
    first, second = results(("a/1", failing()), ("a/1", work("x")))
    assert (type(first), second) == (ZeroDivisionError, "x")


def test_nothing_is_kept_of_a_request_that_failed() -> None:
    body = Body()
    kept = weakref.ref(body)

    async def fail(body: Body) -> str:
        raise ZeroDivisionError

    async def ask(body: Body) -> LastAnswers[str]:
        answers: LastAnswers[str] = LastAnswers(10)
        with pytest.raises(ZeroDivisionError):
            await answers.once("a/1", fail(body))
        return answers

    answers = asyncio.run(ask(body))
    del body
    gc.collect()
    assert (kept(), len(answers._last)) == (None, 1)


def test_a_request_that_comes_late_is_refused() -> None:
    _, late = results(("a/2", work("x")), ("a/1", work("y")))
    assert isinstance(late, ExternalEpisodeError)
    assert "'a/1' came after request 2 of that client" in str(late)
    assert DONE == ["x"]


def test_the_clients_that_were_idle_the_longest_are_forgotten() -> None:
    results(*((f"{name}/1", work(name)) for name in "abcba"), most=2)
    assert DONE == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    "request_", ["", "a", "/1", "a/", "a/x", "a/-1", "a/1.5", "a/²", "a/" + 30 * "1", 101 * "a" + "/1"]
)
def test_other_forms_are_refused(request_: str) -> None:
    with pytest.raises(MessageError, match="expected 'CLIENT/NUMBER'"):
        numbered(request_)
    assert isinstance(results((request_, work("x")))[0], MessageError)
    assert DONE == []


def test_the_client_may_have_a_slash() -> None:
    assert numbered("a/b/7") == ("a/b", 7)
