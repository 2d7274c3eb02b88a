"""Batches with RLlib's names, of what workers sampled: reef.callbacks.sample_batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.batch import Rollout, Sample
from reef.callbacks import MultiAgentBatch, SampleBatch
from reef.callbacks.sample_batch import connect
from reef.errors import CallbackError, ConfigError


def rollout(first: float = 0.0, **changed: Any) -> Rollout:
    """Three steps of two columns; in the second one an episode ends after two steps, and a dead step follows."""
    obs = first + np.arange(6, dtype=np.float32).reshape(3, 2, 1)
    ended = np.zeros((3, 2), np.bool_)
    ended[1, 1] = True
    mask = np.ones((3, 2), np.bool_)
    mask[2, 1] = False
    arrays = {"obs": obs, "next_obs": obs + 2, "actions": np.zeros((3, 2), np.int64), "rewards": obs[..., 0].copy()}
    arrays |= {"terminated": ended, "truncated": np.zeros_like(ended), "mask": mask}
    return Rollout(**(arrays | {"extras": {"action_logp": obs[..., 0] - 1}} | changed))


def sample(**rollouts: Rollout) -> Sample:
    return Sample(rollouts or {"default_policy": rollout()}, [], env_steps=5, progress=5)


def test_rows_are_the_valid_steps_column_after_column() -> None:
    batch = SampleBatch.concat_samples([sample(), sample(default_policy=rollout(10.0))])
    assert batch.count == 10
    assert batch["rewards"].tolist() == [0, 2, 4, 1, 3, 10, 12, 14, 11, 13]
    assert batch["dones"].tolist() == [False, False, False, False, True] * 2
    assert batch[SampleBatch.NEXT_OBS].shape == (10, 1)


def test_a_learner_gets_one_column_that_is_cut_where_fragments_end() -> None:
    made = SampleBatch.concat_samples([sample(), sample()]).rollout()
    assert made.shape == (10, 1)
    assert made.truncated[:, 0].tolist() == [False, False, True, False, False] * 2
    assert made.terminated[:, 0].tolist() == [False, False, False, False, True] * 2
    np.testing.assert_array_equal(made.extras["action_logp"][:, 0], made.rewards[:, 0] - 1)


def test_what_is_written_into_a_batch_is_what_is_learned_from() -> None:
    batch = SampleBatch.concat_samples([SampleBatch.concat_samples([sample()]), sample()])
    batch["rewards"] = np.arange(10)
    assert batch.rollout().rewards[:, 0].tolist() == list(range(10))
    assert batch.copy().rollout().truncated.sum() == batch.rollout().truncated.sum() == 2


def test_the_rows_of_each_episode_are_a_batch_that_shares_its_arrays() -> None:
    batch = SampleBatch.concat_samples([sample(), sample(default_policy=rollout(10.0))])
    episodes = batch.split_by_episode()
    assert [episode["rewards"].tolist() for episode in episodes] == [[0, 2, 4], [1, 3], [10, 12, 14], [11, 13]]
    episodes[1]["rewards"] = [-1, -1]
    assert batch["rewards"].tolist() == [0, 2, 4, -1, -1, 10, 12, 14, 11, 13]
    joined = SampleBatch.concat_samples(reversed(episodes))
    assert joined.rollout().truncated[:, 0].tolist() == [False, False] + [False, False, True] + [False] * 4 + [True]


def test_a_batch_summarises_itself() -> None:
    text = repr(SampleBatch.concat_samples([sample()]))
    assert "'obs': np.ndarray((5, 1), dtype=float32, min=0.0, max=4.0, mean=2.0)" in text
    assert "'dones': np.ndarray((5,), dtype=bool, min=0.0, max=1.0, mean=0.2)" in text
    assert [line.split(":")[0].strip() for line in text.splitlines()[1:-1]] == sorted(
        map(repr, ("action_logp", "actions", "dones", "new_obs", "obs", "rewards", "terminateds", "truncateds"))
    )


def test_several_policies_have_batches_of_their_own() -> None:
    both = sample(left=rollout(), right=rollout(10.0))
    batch = MultiAgentBatch.concat_samples([both, both])
    assert batch.count == 10
    assert batch.policy_batches["right"]["rewards"].min() == 10
    assert "'left': {" in repr(batch)
    assert "np.ndarray((10, 1)" in repr(batch)
    with pytest.raises(ConfigError, match=r"the policies \['left', 'right'\] acted. Use MultiAgentBatch"):
        SampleBatch.concat_samples([both])


def test_what_is_no_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match="Rollout is not what worker.sample"):
        SampleBatch.concat_samples([rollout()])
    with pytest.raises(ConfigError, match="nothing to put together"):
        SampleBatch.concat_samples([])
    with pytest.raises(ConfigError, match="only what concat_samples returns can be learned from"):
        SampleBatch.of(rollout()).rollout()


def test_a_learner_connector_returns_the_batch_or_arrays_of_it() -> None:
    batch = SampleBatch.of(rollout())

    def halved(batch: SampleBatch) -> SampleBatch:
        batch["rewards"] = batch["rewards"] / 2
        return batch

    connect(halved, batch)
    assert batch["rewards"].max() == 2.5
    connect(lambda batch: {"rewards": np.ones((3, 2))}, batch)
    assert batch["rewards"].tolist() == [[1, 1]] * 3
    connect(lambda batch: halved(batch.copy()), batch)
    assert batch["rewards"].tolist() == [[0.5, 0.5]] * 3
    ended = np.ones((3, 2), np.bool_)
    connect(lambda batch: {**batch, "terminateds": ended}, batch)
    assert batch["dones"].all(), "those from before may be there"
    batch = SampleBatch.of(rollout())
    connect(lambda batch: {"terminateds": ended, "dones": ended}, batch)
    assert batch["dones"].all()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "learner_connector returned None: expected the batch, or a dict"),
        ({"reward": 1}, "learner_connector: a batch has no array 'reward' to write to. Did you mean 'rewards'?"),
        ({"rewards": np.zeros(3)}, r"learner_connector: batch\['rewards'\] has the shape \[3, 2\], not \[3\]"),
        ({"dones": np.ones((3, 2))}, "learner_connector changed 'dones', which can only be read: return terminateds"),
    ],
)
def test_what_a_learner_connector_may_not_return(found: Any, message: str) -> None:
    with pytest.raises(CallbackError, match=message):
        connect(lambda batch: found, SampleBatch.of(rollout()))
