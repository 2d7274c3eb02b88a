"""A2C and PG: their loss, one step a batch, and what they refuse.

It tests reef.algorithms.actor_critic and reef.algorithms.pg too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.algorithms.a2c import A2CConfig, A2CLearner, MicrobatchLearner, parts
from reef.algorithms.pg import PGConfig
from reef.batch import Rollout
from reef.errors import ConfigError

OBS, ACTIONS = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)


def learner(kind: type[A2CConfig] = A2CConfig, **training: Any) -> A2CLearner:
    config = kind().training(**({"model": {"fcnet_hiddens": [4]}} | training)).debugging(seed=0)
    return A2CLearner(config, OBS, ACTIONS)


def microbatches(**training: Any) -> MicrobatchLearner:
    return MicrobatchLearner(A2CConfig().training(**training).debugging(seed=0), OBS, ACTIONS)


def rollout(steps: int = 3, columns: int = 2) -> Rollout:
    """Reward 1 in each step; the episode of column 0 terminates with the last one."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((steps, columns, 2)).astype(np.float32)
    flags = np.zeros((steps, columns), np.bool_)
    terminated = flags.copy()
    terminated[-1, 0] = True
    extras = {
        "action_dist_inputs": np.zeros((steps, columns, 2), np.float32),
        "action_logp": np.full((steps, columns), -np.log(2), np.float32),
    }
    return Rollout(
        obs=obs,
        actions=rng.integers(0, 2, (steps, columns)),
        rewards=np.ones((steps, columns), np.float32),
        next_obs=obs,
        terminated=terminated,
        truncated=flags,
        mask=~flags,
        extras=extras,
    )


def test_loss_by_hand() -> None:
    one = learner(vf_loss_coeff=0.5, entropy_coeff=0.1)
    one.begin(0)
    logits = torch.tensor([[0.0, 0.0], [0.0, np.log(3.0)]], dtype=torch.float32)
    minibatch = {
        "actions": torch.tensor([0, 1]),
        "advantages": torch.tensor([2.0, -1.0]),
        "value_targets": torch.tensor([1.0, 5.0]),
    }
    found = one.loss((logits, torch.tensor([0.0, 3.0])), minibatch)
    policy = -(2 * np.log(0.5) - np.log(0.75)) / 2
    entropy = (np.log(2) - 0.25 * np.log(0.25) - 0.75 * np.log(0.75)) / 2
    assert found.stats["policy_loss"].item() == pytest.approx(policy, abs=1e-6)
    assert found.stats["vf_loss"].item() == pytest.approx(2.5)
    assert found.stats["entropy"].item() == pytest.approx(entropy, abs=1e-6)
    assert found.value.item() == pytest.approx(policy + 0.5 * 2.5 - 0.1 * entropy, abs=1e-6)


def test_a_batch_is_one_step() -> None:
    one = learner()
    (minibatch,) = one.minibatches(one.prepare(rollout(3, 2)))
    assert len(minibatch["actions"]) == 6


@pytest.mark.parametrize("settings", [{}, {"lambda_": 0.5}])
def test_without_a_critic_the_advantages_are_the_returns(settings: dict[str, Any]) -> None:
    one = learner(PGConfig, gamma=0.5, **settings)
    columns = one.prepare(rollout(3, 2))
    np.testing.assert_allclose(columns["advantages"].reshape(3, 2), [[1.75, 1.75], [1.5, 1.5], [1.0, 1.0]])


def test_without_a_critic_a_return_ends_where_the_episode_is_cut_and_with_one_it_goes_on() -> None:
    batch = rollout(3, 2)
    batch.truncated[-1] = True
    without = learner(PGConfig, gamma=0.5).prepare(batch)["advantages"].reshape(3, 2)
    np.testing.assert_allclose(without[:, 1], [1.75, 1.5, 1.0])
    one = learner(PGConfig, gamma=0.5, use_critic=True, use_gae=False)
    weights = one.policy.get_weights()
    weights["vf.weight"][:], weights["vf.bias"][:] = 0.0, 8.0
    one.policy.set_weights(weights)
    targets = one.prepare(batch)["value_targets"].reshape(3, 2)
    np.testing.assert_allclose(targets[:, 1], [1.75 + 1, 1.5 + 2, 1.0 + 4], rtol=1e-6)


def test_without_a_critic_its_layer_stays_as_it_is() -> None:
    one = learner(PGConfig)
    before = one.policy.get_weights()
    one.update(rollout(), 0)
    after = one.policy.get_weights()
    moved = {name for name in after if (after[name] != before[name]).any()}
    assert moved and not any(name.startswith("vf.") for name in moved)


@pytest.mark.parametrize("grad_clip", [None, 0.01])
@pytest.mark.parametrize("size", [1, 4, 8])
@pytest.mark.parametrize("model", [{}, {"use_lstm": True, "lstm_cell_size": 3, "max_seq_len": 1}])
def test_parts_of_a_batch_make_the_step_of_the_whole_batch(model: Any, size: int, grad_clip: float | None) -> None:
    given = {"model": {"fcnet_hiddens": [4]} | model, "grad_clip": grad_clip, "lr": 0.1}
    given |= {"normalize_advantages": True, "train_batch_size": 10, "optimizer": {"type": "SGD"}}
    whole, by_parts = microbatches(**given), microbatches(**given, microbatch_size=size)
    batch = replace(rollout(5, 2), state_in=whole.policy.initial_state(2))  # 10 steps
    updates = [each.update(batch, 0) for each in (whole, by_parts)]
    np.testing.assert_allclose(whole.weights(), by_parts.weights(), atol=1e-7)
    assert updates[0].stats == pytest.approx(updates[1].stats, abs=1e-6)


def test_parts_are_whole_sequences_and_weigh_by_their_valid_steps() -> None:
    model = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3, "max_seq_len": 4}
    given = {"model": model, "lr": 0.1, "train_batch_size": 12, "optimizer": {"type": "SGD"}}
    whole, by_parts = microbatches(**given), microbatches(**given, microbatch_size=9)
    batch = replace(rollout(6, 2), state_in=whole.policy.initial_state(2))
    batch.mask[4:, 0] = False  # the second sequence of this column is dropped, that of the other has 2 of 4 steps
    (minibatch,) = by_parts.minibatches(by_parts.prepare(batch))
    found = list(parts(minibatch, 9, by_parts.policy.inputs))
    assert [part["obs"].shape[:2] for part in found] == [(2, 4), (1, 4)]
    assert sum(len(part["actions"]) for part in found) == 10
    for each in (whole, by_parts):
        each.update(batch, 0)
    np.testing.assert_allclose(whole.weights(), by_parts.weights(), atol=1e-7)


def test_no_part_has_more_steps_than_said() -> None:
    one, seen = microbatches(microbatch_size=4, train_batch_size=10), []
    loss = one.loss
    one.loss = lambda outputs, minibatch: seen.append(len(minibatch["actions"])) or loss(outputs, minibatch)  # type: ignore[method-assign,func-returns-value]
    one.setup()
    one.update(rollout(5, 2), 0)
    assert seen == [4, 4, 2]


@pytest.mark.parametrize("model", [{"use_lstm": True, "lstm_cell_size": 8}, {"use_attention": True}])
def test_a_memory_is_trained(model: dict[str, Any]) -> None:
    config = A2CConfig().environment("CartPole-v1").training(model=model | {"fcnet_hiddens": [4]}).debugging(seed=0)
    with config.reporting(min_sample_timesteps_per_iteration=200).build() as algorithm:
        before = algorithm.get_policy().get_weights()
        algorithm.train()
        after = algorithm.get_policy().get_weights()
    assert any(name.startswith("memory.") and (after[name] != before[name]).any() for name in after)


@pytest.mark.parametrize(
    ("kind", "settings", "problem"),
    [
        (A2CConfig, {"use_critic": False}, "use_critic=False cannot bootstrap"),
        (PGConfig, {"batch_mode": "truncate_episodes"}, "use_critic=False cannot bootstrap"),
        (A2CConfig, {"clip_param": 0.1}, "clip_param"),
        (A2CConfig, {"microbatch_size": 0}, "microbatch_size=0"),
        (A2CConfig, {"microbatch_size": 200}, "microbatch_size=200: a learner's train batch has 200 steps"),
        (A2CConfig, {"microbatch_size": 100, "num_learner_workers": 2}, "train batch has 100 steps"),
        (A2CConfig, {"microbatch_size": 8, "model": {"use_lstm": True}}, "microbatch_size=8 holds no sequence"),
        (A2CConfig, {"entropy_coeff": "much"}, "entropy_coeff='much'"),
    ],
)
def test_what_they_cannot_do_is_refused(kind: Any, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        kind.from_dict(settings).environment("CartPole-v1").build()
