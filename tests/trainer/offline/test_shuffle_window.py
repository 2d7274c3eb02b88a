"""Steps are drawn from the newest that were read, and reading goes round and round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from reef.algorithms.bc import BCConfig
from reef.batch import Rollout
from reef.offline.recorded import RecordedSource
from reef.offline.shuffle_window import ShuffleWindow


def episode(number: float) -> Rollout:
    shape = (2, 1)
    ended, zeros = np.array([[False], [True]]), np.zeros((*shape, 1), np.float32)
    rewards = np.full(shape, number, np.float32)
    no, yes = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
    return Rollout(zeros, np.zeros(shape, np.int64), rewards, zeros, ended, no, yes)


def source(*numbers: float, weight: float = 1.0) -> RecordedSource:
    def read() -> Iterator[Rollout]:
        yield from map(episode, numbers)

    return RecordedSource(read, weight)


def window(*sources: RecordedSource, size: int) -> ShuffleWindow:
    return ShuffleWindow(sources, size=size, gamma=0.9, n_step=1, seed=0)


def test_it_is_filled_before_the_first_draw_and_then_moves_on() -> None:
    shuffled = window(source(*range(100)), size=20)
    assert set(shuffled.sample(200).rewards) <= set(range(200))
    (held,) = shuffled.windows
    assert held.buffer.added == 220
    drawn = shuffled.sample(2).rewards
    assert set(drawn) <= {*range(1, 12)}, "110 episodes were read before, and the newest ten are held"


def test_the_end_is_followed_by_the_beginning() -> None:
    shuffled = window(source(1, 2, 3), size=4)
    assert {float(reward) for _ in range(10) for reward in shuffled.sample(3).rewards} == {1.0, 2.0, 3.0}


def test_sources_have_their_shares() -> None:
    shuffled = window(source(1), source(2, weight=3.0), size=40)
    assert [len(held.buffer) if held.buffer.added else held.buffer.capacity for held in shuffled.windows] == [10, 30]
    assert shuffled.sample(4000).rewards.mean() == pytest.approx(1.75, abs=0.05)


def test_it_goes_on_where_it_was() -> None:
    first, second = window(source(*range(9)), size=6), window(source(*range(9)), size=6)
    first.sample(5)
    second.set_state(first.state())
    for _ in range(4):
        np.testing.assert_array_equal(first.sample(7).rewards, second.sample(7).rewards)


def test_a_restored_window_reads_no_more_than_one_pass() -> None:
    read = []

    def numbers() -> Iterator[Rollout]:
        for number in range(9):
            read.append(number)
            yield episode(number)

    first, second = (window(RecordedSource(numbers, 1.0), size=6) for _ in range(2))
    first.sample(100)  # five passes, and eight episodes
    read.clear()
    second.set_state(first.state())
    assert read == list(range(8))
    np.testing.assert_array_equal(first.sample(7).rewards, second.sample(7).rewards)


def test_an_algorithm_draws_from_it(tmp_path: Path) -> None:
    step = {"next_obs": [0.0] * 4, "reward": 1.0, "terminated": False, "truncated": False}
    with (tmp_path / "episodes.json").open("w") as out:
        for number in range(30):
            steps = [step | {"obs": [number / 30] * 4, "action": (number + t) % 2} for t in range(7)]
            out.write(json.dumps({"steps": steps}) + "\n")
    given = {"env": "CartPole-v1", "input_": str(tmp_path), "shuffle_buffer_size": 40, "seed": 1}
    config = BCConfig.from_dict({**given, "train_batch_size": 20, "min_train_timesteps_per_iteration": 200})
    with config.build() as algorithm:
        algorithm.train()
        (held,) = algorithm.recorded.windows  # type: ignore[attr-defined]
        assert (len(held.buffer), held.buffer.added >= 240) == (40, True)
        state = algorithm.state()
        expected = algorithm.train()["info"]["learner"]
    with config.build() as again:
        again.set_state(state)
        assert again.train()["info"]["learner"] == expected


def test_no_step_of_many_that_are_read_together_is_passed_over() -> None:
    def read() -> Iterator[Rollout]:
        every = [episode(number) for number in range(50)]
        names = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "mask")
        yield Rollout(**{name: np.concatenate([getattr(one, name) for one in every]) for name in names})

    first, second = (window(RecordedSource(read), size=4) for _ in range(2))
    drawn = {float(reward) for _ in range(80) for reward in first.sample(1).rewards}
    (held,) = first.windows
    assert held.buffer.added == 84, "as many as are drawn, once it is full"
    assert drawn <= set(range(42))
    second.set_state(first.state())
    for _ in range(20):
        np.testing.assert_array_equal(first.sample(3).rewards, second.sample(3).rewards)


def test_files_that_are_shorter_than_they_were_begin_again() -> None:
    first, second = window(source(*range(9)), size=6), window(source(1, 2), size=6)
    first.sample(8)
    second.set_state(first.state())
    assert set(second.sample(100).rewards) <= set(range(9))
