from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.batch import Rollout, Sample
from reef.learn.pace import Pace


def pace(**given: Any) -> Pace:
    usual = {
        "intensity": 2.0,
        "starts": 100,
        "batch_size": 10,
        "round_steps": 20,
        "sync_delay": 40,
    }
    return Pace(**(usual | given))


def sample(worker: int, version: int, steps: int = 20) -> Sample:
    number = np.zeros((steps, 1), np.float32)
    none = number.astype(np.bool_)
    rollout = Rollout(number, number, number, number, none, none, ~none, policy_version=version)
    return Sample({"default_policy": rollout}, [], steps, steps, worker)


@pytest.mark.parametrize(
    ("sampled", "trained", "due"),
    [(99, 0, 0), (100, 0, 0), (104, 0, 0), (105, 0, 1), (110, 10, 1), (110, 20, 0), (1000, 0, 180)],
)
def test_updates_follow_the_steps_sampled_since_learning_started(sampled: int, trained: int, due: int) -> None:
    assert pace().updates_due(sampled, trained) == due


def test_learning_may_be_behind_by_what_a_round_calls_for_and_two_updates() -> None:
    assert pace().due_before_sampling_waits == 2 + 2.0 * 20 / 10
    assert pace(round_steps=0).due_before_sampling_waits == 0, "in one process"


def test_each_step_is_replayed_as_often_as_the_ratio_says() -> None:
    assert pace().samples_per_insert(sampled=200, trained=190) == 1.9
    assert pace().samples_per_insert(sampled=50, trained=0) == 0.0


def test_a_worker_is_due_for_weights_after_its_own_steps() -> None:
    one = pace()
    for worker in (1, 2, 1):
        one.add(sample(worker, version=1))
    assert one.take_outdated([1, 2]) == [1]
    assert one.take_outdated([1, 2]) == []
    one.add(sample(2, version=1))
    assert one.take_outdated([1]) == [], "it is not there"
    assert one.take_outdated([1, 2]) == [2]


def test_staleness_is_that_of_the_newest_fragment_of_each_worker() -> None:
    one = pace()
    assert one.staleness(7, [1, 2]) == {"staleness": 0.0, "staleness_max": 0.0}
    for worker, version in ((1, 2), (2, 3), (1, 6)):
        one.add(sample(worker, version))
    assert one.staleness(7, [1, 2]) == {"staleness": 2.5, "staleness_max": 4.0}
    assert one.staleness(7, [1]) == {"staleness": 1.0, "staleness_max": 1.0}


def test_a_restored_pace_goes_on_the_same() -> None:
    one, two = pace(), pace()
    one.add(sample(0, version=3))
    two.set_state(one.state())
    assert two.staleness(5, [0]) == one.staleness(5, [0])
    for each in (one, two):
        each.add(sample(0, version=4))
        assert each.take_outdated([0]) == [0]
