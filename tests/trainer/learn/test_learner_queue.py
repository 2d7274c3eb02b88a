from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from reef.batch import Rollout, Sample
from reef.learn.learner_queue import FragmentReplay, LearnerQueue, TrainBatch


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


def taken(queue: LearnerQueue, pops: int, first: int = 0) -> list[int]:
    """The versions of the batches that are learned from, one fragment each, of which a new one comes when needed."""
    found, version = list[int](), first
    while len(found) < pops:
        if (batch := queue.pop()) is None:
            queue.add(sample(version))
            version += 1
        else:
            found += versions(batch)
    return found


@pytest.mark.parametrize(
    ("slots", "updates", "expected"),
    [
        (1, 1, [0, 1, 2, 3, 4, 5, 6, 7]),
        (1, 3, [0, 0, 0, 1, 1, 1, 2, 2]),
        (2, 1, [0, 1, 2, 3, 4, 5, 6, 7]),
        # the first one gets one update alone, so that from then on each turn needs one batch
        (2, 2, [0, 1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5]),
        (3, 3, [0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 6]),
    ],
)
def test_batches_are_learned_from_in_turn(slots: int, updates: int, expected: list[int]) -> None:
    queue = LearnerQueue(size=3, batch_steps=10, slots=slots, updates_per_batch=updates)
    assert taken(queue, len(expected)) == expected


def test_after_the_first_ones_every_batch_is_learned_from_equally_often() -> None:
    found = Counter(taken(LearnerQueue(size=3, batch_steps=10, slots=4, updates_per_batch=6), 600))
    assert [found[version] for version in range(4)] == [2, 3, 5, 6]
    assert {found[version] for version in range(4, max(found) - 4)} == {6}


def test_a_spent_batch_is_not_kept() -> None:
    queue = LearnerQueue(size=3, batch_steps=10, slots=2, updates_per_batch=2)
    taken(queue, 12)
    assert [slot and versions(slot.batch) for slot in queue._slots] == [[6], None]


def test_batches_with_a_fragment_that_is_too_old_are_dropped_wherever_they_are() -> None:
    queue = LearnerQueue(size=5, batch_steps=20, slots=2, updates_per_batch=4, max_staleness=3)
    for version in (0, 4, 1, 4, 4, 4, 2, 4):
        queue.add(sample(version))
    assert [versions(queue.pop()) for _ in range(2)] == [[0, 4], [1, 4]]
    assert [queue.drop_stale(version) for version in (3, 4, 4, 6, 7, 8)] == [0, 1, 0, 2, 0, 1]
    assert queue.pop() is None
    without = LearnerQueue(size=5, batch_steps=10)
    without.add(sample(0))
    assert without.drop_stale(1000) == 0 and versions(without.pop()) == [0]


@pytest.mark.parametrize("proportion", [0.5, 1.0, 2.25])
def test_old_fragments_are_mixed_in_at_their_proportion(proportion: float) -> None:
    queue = LearnerQueue(size=2, batch_steps=10, replay=FragmentReplay(proportion, slots=5, seed=0))
    ages = Counter[int]()
    for version in range(2000):
        queue.size = 100
        assert queue.add(sample(version)) == 0
        (new,), *old = [versions(queue.pop()) for _ in range(len(queue))]
        assert new == version
        ages.update(version - each for (each,) in old)
    assert ages.keys() == {1, 2, 3, 4, 5}, "of the newest fragments before it"
    assert ages.total() == pytest.approx(2000 * proportion, rel=0.05)
    assert min(ages.values()) > 0.8 * max(ages.values()), "each is as likely"


def test_a_full_queue_counts_batches_that_old_fragments_push_out() -> None:
    queue = LearnerQueue(size=1, batch_steps=10, replay=FragmentReplay(2.0, slots=1, seed=0))
    assert [queue.add(sample(version)) for version in range(3)] == [0, 3, 3]
    assert versions(queue.pop()) == [1]


def test_fragments_that_are_too_old_are_not_mixed_in() -> None:
    queue = LearnerQueue(size=9, batch_steps=10, max_staleness=2, replay=FragmentReplay(1.0, slots=5, seed=0))
    queue.add(sample(0))
    queue.drop_stale(3)
    queue.add(sample(3))
    assert [versions(queue.pop()) for _ in range(len(queue))] == [[3]]


def test_its_state_holds_slots_and_old_fragments() -> None:
    def made(slots: int = 3) -> LearnerQueue:
        replay = FragmentReplay(0.5, slots=4, seed=0)
        return LearnerQueue(size=9, batch_steps=10, slots=slots, updates_per_batch=3, replay=replay)

    one, again, smaller = made(), made(), made(slots=1)
    taken(one, 7)
    for each in (again, smaller):
        each.set_state(one.state())
    following = taken(one, 40, first=50)
    assert taken(again, 40, first=50) == following
    assert taken(smaller, 40, first=50)[0] == following[0]


def test_states_of_before_there_were_slots_are_read() -> None:
    queue, again = LearnerQueue(size=3, batch_steps=10), LearnerQueue(size=3, batch_steps=10, slots=2)
    queue.add(sample(4))
    again.set_state({name: queue.state()[name] for name in ("unpublished", "batches")})
    assert versions(again.pop()) == [4]
