"""APPO: its loss, its target network, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rollouts import LSTM, OBS, learner, rollout

from reef.algorithms.appo import APPOConfig, APPOLearner
from reef.algorithms.impala import IMPALAConfig, IMPALALearner
from reef.errors import ConfigError


def made(**training: Any) -> Any:
    return learner(APPOLearner, APPOConfig(), **training)


def test_the_defaults_are_those_of_rllib() -> None:
    config = APPOConfig()
    assert (config.clip_param, config.vtrace, config.use_kl_loss, config.grad_clip) == (0.4, True, False, 40.0)
    assert (config.target_update_frequency, config.tau, config.num_sgd_iter) == (1, 1.0, 1)
    assert (config.kl_coeff, config.kl_target, config.train_batch_size) == (1.0, 0.01, 500)


def test_loss_by_hand() -> None:
    one = made(vf_loss_coeff=0.5, entropy_coeff=0.1, clip_param=0.2, use_kl_loss=True, num_sgd_iter=2, kl_coeff=3.0)
    one.begin(0)
    logits = torch.tensor([[0.0, 0.0], [0.0, np.log(3.0)]], dtype=torch.float32)
    minibatch = {
        "actions": torch.tensor([0, 1]),
        "old_logp": torch.log(torch.tensor([0.25, 0.75])),  # the ratios are 2 and 1
        "advantages": torch.tensor([2.0, -1.0]),
        "value_targets": torch.tensor([1.0, 5.0]),
        "target_dist_inputs": torch.zeros(2, 2),
    }
    found = one.loss((logits, torch.tensor([0.0, 3.0])), minibatch)
    policy = -(2.0 * 1.2 - 1.0) / 2
    entropy = (np.log(2) - 0.25 * np.log(0.25) - 0.75 * np.log(0.75)) / 2
    kl = 0.5 * (np.log(0.5 / 0.25) + np.log(0.5 / 0.75)) / 2
    assert found.stats["policy_loss"].item() == pytest.approx(policy, abs=1e-6)
    assert found.stats["kl"].item() == pytest.approx(kl, abs=1e-6)
    assert found.value.item() == pytest.approx(policy + 0.5 * 2.5 - 0.1 * entropy + 3.0 * kl, abs=1e-6)


def test_the_ratio_is_taken_to_the_target_policy_and_bounded_by_the_one_that_acted() -> None:
    one = made()
    batch = rollout()
    batch.extras["action_logp"][0] += 2.0
    columns = one.prepare(batch)
    target = one._logp(one.target_layout.dist_inputs(batch), batch.actions).reshape(-1)
    acted = batch.extras["action_logp"].reshape(-1)
    # min(acted / target, 2) * policy / acted
    weight = np.minimum(np.exp(acted - target), 2.0) / np.exp(acted)
    np.testing.assert_allclose(columns["old_logp"], -np.log(weight), rtol=1e-5)
    assert (np.exp(acted - target) > 2.0).any() and (np.exp(acted - target) < 2.0).any()


def test_with_a_fresh_target_one_step_goes_where_impala_goes_but_for_the_bound() -> None:
    impala, appo = learner(IMPALALearner, IMPALAConfig()), made()
    batch = rollout()
    batch.extras["action_logp"][:] = np.log(0.5)  # near the first policy, so that the bound of 2 does not bind
    for one in (impala, appo):
        one.update(batch, 0)
    np.testing.assert_allclose(impala.weights(), appo.weights(), rtol=1e-3, atol=1e-5)


def test_the_target_network_moves_every_so_many_updates() -> None:
    one = made(target_update_frequency=2, num_sgd_iter=3, lr=0.01)
    first, seen = one.weights().copy(), []
    for _ in range(5):
        before = one.weights().copy()
        one.update(rollout(), 0)
        target = one.target.network.flat.numpy()
        seen.append("first" if np.array_equal(target, first) else "now" if np.array_equal(target, before) else "older")
    assert seen == ["first", "first", "now", "older", "now"]
    assert one.parameters.optimizer.step_count.item() == 15


def test_vtrace_is_for_the_target_policy_and_the_critic_in_training() -> None:
    one = made(target_update_frequency=100, lr=0.05)
    inputs = one.target_layout.dist_inputs(rollout())
    for _ in range(5):
        one.update(rollout(), 0)
    np.testing.assert_array_equal(one.target_layout.dist_inputs(rollout()), inputs)
    assert not np.allclose(one.layout.dist_inputs(rollout()), inputs)
    values, next_values, _ = one.layout.read(rollout())
    extras = {"target_logp": one._logp(inputs, rollout().actions), "target_dist_inputs": inputs}
    batch = rollout()
    batch.extras.update(extras)
    expected, _ = one.estimate(batch, values, next_values)
    np.testing.assert_array_equal(one.prepare(rollout())["advantages"], expected.reshape(-1))


def test_the_weight_of_the_kl_adapts_and_is_kept_with_the_target() -> None:
    one = made(use_kl_loss=True, target_update_frequency=100, lr=0.05, kl_target=1e-4)
    for _ in range(5):
        stats = one.update(rollout(), 0).stats
    assert stats["kl"] > 2e-4 and one.kl_penalty.value == stats["cur_kl_coeff"] > 1.0
    two = made(use_kl_loss=True, target_update_frequency=100, lr=0.05, kl_target=1e-4)
    two.set_state(one.state())
    assert two.update(rollout(), 0).stats == one.update(rollout(), 0).stats
    np.testing.assert_array_equal(one.weights(), two.weights())


def test_weights_that_are_set_are_the_targets_too() -> None:
    one = made(target_update_frequency=100)
    one.set_weights(one.weights() + 1.0)
    np.testing.assert_array_equal(one.target.network.flat.numpy(), one.weights())


def test_the_divergence_of_real_actions_is_zero_from_the_same_policy_and_stays_finite() -> None:
    given = {"use_kl_loss": True, "target_update_frequency": 100, "lr": 0.01, "model": {"fcnet_hiddens": [4]}}
    one = APPOLearner(APPOConfig.from_dict(given | {"seed": 0}), OBS, spaces.Box(-1.0, 1.0, (1,)))
    batch = rollout()
    batch = replace(batch, actions=np.tanh(batch.rewards)[..., None])
    columns = one.prepare(batch)
    first = one.loss(one.policy(columns["obs"]), columns)
    assert first.stats["kl"].item() == pytest.approx(0.0, abs=1e-6)
    kl = [one.update(batch, 0).stats["kl"] for _ in range(20)]
    assert np.isfinite(kl).all() and kl[-1] > 1e-3


@pytest.mark.parametrize("vtrace", [True, False])
@pytest.mark.parametrize("model", [LSTM, {"use_attention": True, "attention_dim": 8, "attention_head_dim": 4}])
def test_a_memory_is_trained_beside_a_target_with_one(model: dict[str, Any], vtrace: bool) -> None:
    config = APPOConfig().environment("CartPole-v1").debugging(seed=0)
    config.training(train_batch_size=40, model=model | {"fcnet_hiddens": [4], "max_seq_len": 5})
    config.training(vtrace=vtrace, target_update_frequency=2, num_sgd_iter=2)
    config.rollouts(rollout_fragment_length=10).reporting(min_sample_timesteps_per_iteration=120)
    with config.build() as algorithm:
        before = algorithm.get_policy().get_weights()
        algorithm.train()
        after = algorithm.get_policy().get_weights()
    assert any(name.startswith("memory.") and (after[name] != before[name]).any() for name in after)


def test_the_weight_of_a_penalty_that_is_not_there_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    APPOConfig().environment("CartPole-v1").training(kl_coeff=0.5).build().stop()
    assert "kl_coeff=0.5 has no effect without use_kl_loss." in caplog.messages


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"use_kl_loss": True}, "use_kl_loss=True has no effect with target_update_frequency=1"),
        ({"use_kl_loss": True, "num_sgd_iter": 2, "minibatch_buffer_size": 2}, "Set target_update_frequency above 1"),
        ({"clip_param": 0.0}, "clip_param=0.0: must be larger than 0"),
        ({"num_aggregation_workers": 1}, "num_aggregation_workers=1: the driver puts the batches together"),
        ({"sgd_minibatch_size": 64}, "sgd_minibatch_size"),
        ({"target_network_update_freq": 64}, "target_network_update_freq"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        APPOConfig.from_dict(settings).environment("CartPole-v1").build()
