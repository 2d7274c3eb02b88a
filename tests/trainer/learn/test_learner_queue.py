from __future__ import annotations

from dataclasses import asdict

import numpy as np

from reef.batch import Rollout, Sample
from reef.learn.learner_queue import LearnerQueue, TrainBatch


def sample(version: int, steps: int = 10, policies: tuple[str, ...] = ("one",)) -> Sample:
    flags = np.zeros((steps, 1), np.bool_)
    rewards = np.full((steps, 1), version, np.float32)
    rollout = Rollout(
        rewards, rewards, rewards, rewards, flags, flags, ~flags, {"logp": rewards}, policy_version=version
    )
    return Sample(dict.fromkeys(policies, rollout), [], env_steps=steps, progress=steps)


def versions(batch: TrainBatch | None) -> list[int]:
    return [] if batch is None else [part.policy_version for part in batch.fragments["one"]]


def test_fragments_become_batches_in_the_order_of_their_arrival() -> None:
    queue = LearnerQueue(size=3, batch_steps=25)
    assert queue.pop() is None
    assert [queue.add(sample(version)) for version in range(7)] == [0] * 7
    assert len(queue) == 2
    first, second = queue.pop(), queue.pop()
    assert (versions(first), versions(second), queue.pop()) == ([0, 1, 2], [3, 4, 5], None)
    assert first is not None and first.env_steps == 30
    assert first.rollouts()["one"].shape == (10, 3)


def test_a_full_queue_drops_the_oldest_batch() -> None:
    queue = LearnerQueue(size=2, batch_steps=10)
    assert [queue.add(sample(version)) for version in range(5)] == [0, 0, 1, 1, 1]
    assert [versions(queue.pop()) for _ in range(2)] == [[3], [4]]


def test_staleness_is_in_versions_and_weighs_every_step() -> None:
    batch = TrainBatch()
    batch.add(sample(7, steps=30, policies=("one", "two")))
    batch.add(sample(3, steps=10))
    assert batch.staleness(8) == {
        "one": {"staleness": (1 * 30 + 5 * 10) / 40, "staleness_max": 5.0},
        "two": {"staleness": 1.0, "staleness_max": 1.0},
    }


def test_its_state_holds_every_batch() -> None:
    queue, again = LearnerQueue(size=3, batch_steps=20), LearnerQueue(size=3, batch_steps=20)
    for version in range(5):
        queue.add(sample(version))
    queue.unpublished = 2
    again.set_state(queue.state())
    assert (len(again), again.unpublished) == (2, 2)
    for each in (queue, again):
        each.add(sample(5))
    for _ in range(3):
        one, other = queue.pop(), again.pop()
        assert one is not None and other is not None and versions(one) == versions(other)
        np.testing.assert_equal(asdict(one), asdict(other))
