"""What must be read to follow PPO to its gradient does not grow."""

from __future__ import annotations

import pytest
from benchmarks.shape import Shape, measure, table

# What was counted last: lower a number when the count falls. The goals are in benchmarks/shape.py.
LIMITS = {"files": 44, "lines": 6932, "calls": 22, "calls without helpers": 14}


@pytest.fixture(scope="module")
def shape() -> Shape:
    return measure()


@pytest.mark.parametrize("what", LIMITS)
def test_the_way_to_the_gradient_does_not_grow(what: str, shape: Shape):
    assert shape.counts[what] <= LIMITS[what], table(shape)


def test_the_observation_is_seen_from_the_worker_to_the_gradient(shape: Shape):
    found = {call.split()[0]: helper for call, helper in shape.calls.items()}
    stages = ("RolloutWorker._step", "PolicyRunner.record", "Fragment.rollout", "on_policy")
    stages += ("ActorCriticLearner.prepare", "PPOLearner.minibatches", "Learner.update", "TrainedParameters.descend")
    assert found.keys() >= set(stages), table(shape)
    assert [stage for stage in stages if found[stage]] == ["ActorCriticLearner.prepare", "PPOLearner.minibatches"]


def test_what_only_reads_the_observation_is_not_on_its_way(shape: Shape):
    assert not [call for call in shape.calls if call.startswith(("check_finite", "Policy.act", "cut_ends"))]


def test_files_are_those_that_run_until_the_step_and_those_of_the_settings(shape: Shape):
    assert shape.lines.keys() >= {"learn/adam.py", "math/gae.py", "config/groups/training.py"}
    # the statistics of an iteration follow the step, and Ray's forms of the seams do not run
    assert not [file for file in shape.lines if file.endswith("system_load.py") or file.startswith("distributed/")]


def test_a_goal_is_met_or_not():
    small = Shape({"a.py": 3201}, {f"call {i}": i > 7 for i in range(10)})
    assert small.counts == {"files": 1, "lines": 3201, "calls": 10, "calls without helpers": 8}
    text = " ".join(table(small).split())
    assert "files 1 goal 24: met lines 3201 goal 3200: not met calls 10 goal 10: met calls without helpers 8" in text
