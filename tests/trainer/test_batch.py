from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from reef.batch import ROLLOUT_COLUMNS, Rollout, concat_columns


def rollout(steps: int, columns: int, start: int = 0, version: int = 0) -> Rollout:
    rewards = np.arange(start, start + steps * columns, dtype=np.float32).reshape(steps, columns)
    flags = np.zeros((steps, columns), np.bool_)
    obs = rewards[..., None]
    return Rollout(
        obs, obs[..., 0].astype(np.int64), rewards, obs + 1, flags, flags, ~flags, {"logp": rewards}, {}, version
    )


def test_flatten_keeps_the_steps_of_a_column_together() -> None:
    transitions = rollout(3, 2).flatten()
    assert transitions.rewards.tolist() == [0, 2, 4, 1, 3, 5]
    assert transitions.extras["logp"].tolist() == transitions.rewards.tolist()


def test_flatten_leaves_masked_steps_out() -> None:
    whole = rollout(3, 2)
    whole.mask[1, 0] = False
    assert whole.flatten().rewards.tolist() == [0, 4, 1, 3, 5]
    assert len(whole) == 5


def test_columns_of_unequal_length_are_padded_with_masked_steps() -> None:
    joined = concat_columns([rollout(2, 1, version=7), rollout(3, 2, start=10, version=5)])
    assert joined.shape == (3, 3)
    assert joined.mask[:, 0].tolist() == [True, True, False]
    assert joined.policy_version == 5
    assert sorted(joined.flatten().rewards.tolist()) == [0, 1, 10, 11, 12, 13, 14, 15]


def test_rows_of_transitions_can_be_picked() -> None:
    picked = rollout(3, 2).flatten()[np.array([5, 0])]
    assert picked.rewards.tolist() == [5, 0]
    assert picked.next_obs[:, 0].tolist() == [6, 1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 1)])
def test_a_rollout_is_the_same_in_another_process(shape: tuple[int, ...]) -> None:
    obs = np.random.default_rng(0).normal(size=(5, 2, *shape)).astype(np.float32)
    sent = replace(rollout(4, 2), obs=obs[:4], next_obs=obs[1:].copy())
    sent.next_obs[1, 1] = -7.0  # an episode ended: the next observation is another one's first
    sent.next_obs[3, 0] = np.nan
    arrived = pickle.loads(pickle.dumps(sent))
    for name in (*ROLLOUT_COLUMNS, "policy_version"):
        np.testing.assert_array_equal(getattr(arrived, name), getattr(sent, name))
    np.testing.assert_array_equal(arrived.extras["logp"], sent.extras["logp"])


def test_observations_go_to_another_process_once() -> None:
    obs = np.zeros((101, 2, 1000), np.float32)
    sent = replace(rollout(100, 2), obs=obs[:-1], next_obs=obs[1:])
    assert len(pickle.dumps(sent)) < 1.02 * obs.nbytes


def test_a_rollout_without_steps_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(rollout(0, 2))).shape == (0, 2)
