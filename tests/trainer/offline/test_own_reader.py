"""A reader of the user's own gives episodes as steps, or as RLlib's columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reef.algorithms.bc import BCConfig
from reef.config.groups.inputs import IOContext
from reef.errors import CallbackError, ConfigError
from reef.offline.own_reader import read_own

STEP = {"obs": [0.0, 0.1, 0.2, 0.3], "action": 1, "next_obs": [0.0] * 4, "reward": 1.0}
STEP |= {"terminated": False, "truncated": False}


def config(**settings: Any) -> BCConfig:
    return BCConfig.from_dict({"env": "CartPole-v1", "train_batch_size": 8, **settings})


def steps_of(make: Any, **settings: Any) -> list[Any]:
    return [steps() for _, steps in read_own(make, IOContext(config(input_=make, **settings)))]


def counted(ioctx: IOContext) -> Iterator[list[dict[str, Any]]]:
    for number in range(ioctx.input_config["episodes"]):
        yield [STEP | {"reward": float(number)}] * 3


class Batches:
    """As a reader of RLlib's: `next` returns columns."""

    def __init__(self, ioctx: IOContext) -> None:
        self.left = 2

    def next(self) -> dict[str, Any] | None:
        self.left -= 1
        if self.left < 0:
            return None
        columns = {"obs": np.zeros((3, 4)), "new_obs": np.ones((3, 4)), "actions": np.array([0, 1, 0])}
        ends = {"terminateds": np.array([False, True, False]), "truncateds": np.zeros(3, bool)}
        return columns | ends | {"rewards": np.arange(3.0), "eps_id": np.array([7, 7, 8])}


def test_a_function_gives_episodes_by_its_settings() -> None:
    assert [len(steps) for steps in steps_of(counted, input_config={"episodes": 4})] == [3] * 4


def test_columns_are_split_into_episodes() -> None:
    found = steps_of(Batches)
    assert [len(steps) for steps in found] == [2, 1, 2, 1]
    assert found[0][1]["terminated"] is True


def test_columns_that_do_not_belong_together_are_no_episode() -> None:
    def broken(ioctx: IOContext) -> list[Any]:
        return [{"obs": np.zeros((2, 4)), "actions": np.zeros(1), "rewards": np.zeros(2)}]

    with pytest.raises(ValueError, match="it has no column 'terminateds'"):
        steps_of(broken)


def test_an_algorithm_learns_from_it() -> None:
    with config(input_=counted, input_config={"episodes": 5}).build() as algorithm:
        assert len(algorithm.recorded) == 15  # type: ignore[attr-defined]
        assert algorithm.recorded.sample(100).rewards.max() == 4.0  # type: ignore[attr-defined]


def raises(ioctx: IOContext) -> list[Any]:
    raise KeyError("bucket")


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"input_": raises}, CallbackError, "input_=raises raised KeyError: 'bucket'"),
        ({"input_": lambda ioctx: 3}, ConfigError, "returned 3: expected an iterable of episodes"),
        ({"input_": lambda ioctx: []}, ConfigError, "no episode can be read from your own reader. It gave none."),
        ({"input_": lambda ioctx: [[STEP | {"action": 5}]]}, ConfigError, "an action has 5, expected 0 to 1"),
        ({"input_": lambda ioctx: [{"obs": [[1], [1, 2]]}]}, ConfigError, "item 1: .*inhomogeneous"),
        ({"input_": lambda: []}, ConfigError, r"too many positional arguments. It is called with \(ioctx\)"),
        ({"input_": "no_module_of_ours:reader"}, ConfigError, "there is no module 'no_module_of_ours'"),
        ({"input_": "episodes.json", "input_config": {"a": 1}}, ConfigError, "'a' is for a reader of your own"),
    ],
)
def test_what_is_wrong_is_said(settings: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        config(**settings).build()
