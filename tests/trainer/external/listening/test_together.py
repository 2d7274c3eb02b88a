from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from reef.external.listening.together import settle, together_or_alone


def test_a_request_that_fails_is_told_from_those_that_came_with_it() -> None:
    passes = []

    def act(requests: Sequence[int]) -> list[float]:
        passes.append(len(requests))
        return [6 / each for each in requests]

    assert together_or_alone(act, [1, 2]) == [6, 3]
    assert passes == [2]
    first, wrong, last = together_or_alone(act, [1, 0, 2])
    assert (first, last, type(wrong)) == (6, 3, ZeroDivisionError)
    assert passes == [2, 3, 1, 1, 1]


def test_futures_get_answers_and_errors_unless_their_client_is_gone() -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        answered, failed, gone = (loop.create_future() for _ in range(3))
        gone.cancel()
        settle([answered, failed, gone], [1, ValueError("wrong"), 2])
        assert await answered == 1
        with pytest.raises(ValueError, match="wrong"):
            await failed
        assert gone.cancelled()

    asyncio.run(talk())
