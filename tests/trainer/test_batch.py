from __future__ import annotations

import numpy as np

from reef.batch import Rollout, concat_columns


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
