"""The queue of finished fragments."""

from __future__ import annotations

import threading
import time

import numpy as np
from applications import acted

from reef.external.episodes.episode import Played
from reef.external.episodes.queue import StepQueue
from reef.external.episodes.steps import AgentSteps


def fragment(steps: int) -> Played:
    """One of so many steps."""
    own, obs = AgentSteps("p"), np.zeros(1, np.float32)
    for _ in range(steps):
        own.act(obs, acted())
    return Played([own.take(obs)], 1)


def test_the_queue_gives_enough_steps_and_keeps_the_rest() -> None:
    queue = StepQueue(most_steps=6)
    for steps in (2, 3):
        queue.put(fragment(steps))
    assert not queue.is_full
    queue.put(fragment(1))
    assert queue.is_full
    assert [len(each) for each in queue.take(3, 0.0)] == [2, 3]
    assert not queue.is_full
    assert [len(each) for each in queue.take(3, 0.0)] == [1]


def test_an_idle_queue_gives_what_there_is_after_the_timeout() -> None:
    queue = StepQueue(100)
    started = time.monotonic()
    assert queue.take(1, 0.1) == []
    assert 0.1 <= time.monotonic() - started < 5
    queue.put(fragment(2))
    assert [len(each) for each in queue.take(3, 0.1)] == [2]


def test_the_queue_wakes_who_waits() -> None:
    queue = StepQueue(100)
    threading.Timer(0.05, queue.put, [fragment(2)]).start()
    assert [len(each) for each in queue.take(2, 30.0)] == [2]


def test_what_is_counted_may_be_something_else() -> None:
    queue = StepQueue(100)
    for _ in range(3):
        queue.put(fragment(5))
    assert len(queue.take(2, 0.0, lambda played: played.env_steps)) == 2
    assert queue.steps == 5


def test_fragments_that_are_no_progress_do_not_hold_up_who_takes_them() -> None:
    queue = StepQueue(100)
    for _ in range(3):
        queue.put(fragment(5))
    assert len(queue.take(2, 30.0, lambda played: played.env_steps)) == 2
    queue.put(fragment(1))
    assert len(queue.take(2, 0.0, lambda played: 0)) == 1  # until the time is over, though more of them wait
    assert queue.steps == 1
