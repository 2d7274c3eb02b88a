"""IMPALA: V-trace on its batches, the queue before its learner, and what it refuses.

It tests reef.algorithms.asynchronous too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollouts import LSTM, NESTED, Nested, learner, rollout

from reef.algorithms.a2c import A2CConfig, A2CLearner
from reef.algorithms.impala import IMPALAConfig, IMPALALearner
from reef.algorithms.ppo import PPOConfig
from reef.batch import Rollout, concat_columns
from reef.errors import ConfigError
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm


def small(**settings: Any) -> IMPALAConfig:
    base = {"train_batch_size": 40, "rollout_fragment_length": 10, "model": {"fcnet_hiddens": [8]}, "seed": 5}
    config = IMPALAConfig.from_dict(base | settings).environment("CartPole-v1")
    return config.reporting(min_sample_timesteps_per_iteration=40)


def acted_by(one: IMPALALearner, batch: Rollout) -> Rollout:
    """The batch as if the policy in training itself had acted."""
    logp = one._logp(one.layout.dist_inputs(batch), batch.actions)
    return replace(batch, extras=batch.extras | {"action_logp": logp})


def test_the_defaults_are_those_of_the_paper_and_of_rllib() -> None:
    config = IMPALAConfig()
    assert (config.rollout_fragment_length, config.train_batch_size, config.grad_clip) == (50, 500, 40.0)
    assert (config.lr, config.vf_loss_coeff, config.entropy_coeff) == (5e-4, 0.5, 0.01)
    assert (config.learner_queue_size, config.broadcast_interval, config.num_aggregation_workers) == (16, 1, 0)
    assert config.vtrace and not config.normalize_advantages


def test_on_policy_it_is_a2c() -> None:
    impala, a2c = learner(IMPALALearner, IMPALAConfig(), lr=1e-3), learner(A2CLearner, A2CConfig(), lr=1e-3)
    batch = acted_by(impala, rollout())
    np.testing.assert_array_equal(impala.weights(), a2c.weights())
    for one in (impala, a2c):
        one.update(batch, 0)
    np.testing.assert_allclose(impala.weights(), a2c.weights(), rtol=1e-4, atol=1e-6)


def test_off_policy_it_is_not_unless_vtrace_is_off() -> None:
    found = {}
    for vtrace in (True, False):
        one = learner(IMPALALearner, IMPALAConfig(), vtrace=vtrace)
        found[vtrace] = one.prepare(rollout())
    a2c = learner(A2CLearner, A2CConfig()).prepare(rollout())
    torch.testing.assert_close(found[False]["advantages"], a2c["advantages"])
    assert not torch.allclose(found[True]["advantages"], a2c["advantages"])


def test_a_batch_with_a_truncation_inside_is_its_two_trajectories_apart() -> None:
    one = learner(IMPALALearner, IMPALAConfig())
    first, second = rollout(3, 2, seed=1), rollout(3, 2, seed=2)
    first.truncated[-1] = True

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    columns = {name: joined(name) for name in ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")}
    extras = {name: np.concatenate([first.extras[name], second.extras[name]]) for name in first.extras}
    whole = one.prepare(Rollout(**columns, mask=joined("mask"), extras=extras))
    apart = [one.prepare(part) for part in (first, second)]
    for name in ("advantages", "value_targets"):
        torch.testing.assert_close(whole[name], torch.cat([part[name] for part in apart]))


def test_the_last_step_of_a_fragment_is_learned_from() -> None:
    one, batch = learner(IMPALALearner, IMPALAConfig()), rollout(4, 2)
    rewards = batch.rewards.copy()
    rewards[-1, 1] += 1.0
    found = [one.prepare(each)["advantages"].reshape(4, 2) for each in (batch, replace(batch, rewards=rewards))]
    assert found[1][-1, 1] != found[0][-1, 1]
    torch.testing.assert_close(found[0][:, 0], found[1][:, 0])


def test_fragments_of_different_length_are_estimated_each_for_itself() -> None:
    one = learner(IMPALALearner, IMPALAConfig())
    long, short = rollout(6, 2, seed=1), rollout(4, 1, seed=2)
    joint = one.prepare(concat_columns([long, short]))
    mask = np.concatenate([long.mask, np.pad(short.mask, ((0, 2), (0, 0)))], axis=1)
    for name in ("advantages", "value_targets"):
        padded = np.zeros(mask.shape, np.float32)
        padded[mask] = joint[name]
        np.testing.assert_allclose(padded[:, :2].reshape(-1), one.prepare(long)[name], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(padded[:4, 2], one.prepare(short)[name], rtol=1e-5, atol=1e-6)


def test_what_a_recurrent_policy_would_do_is_computed_as_it_acted() -> None:
    config = small(model=LSTM | {"fcnet_hiddens": [8]}, num_envs_per_worker=3, rollout_fragment_length=30)
    worker = RolloutWorker(config)
    spaces_of = worker.spaces["default_policy"]
    one = IMPALALearner(config, *spaces_of)
    worker.set_weights({"default_policy": one.weights()})
    for _ in range(3):  # the second and third continue episodes, so the state before them is not 0
        batch = worker.sample().rollouts["default_policy"]
        assert batch.done.any()
        np.testing.assert_allclose(one.layout.dist_inputs(batch), batch.extras["action_dist_inputs"], atol=1e-5)


@pytest.mark.parametrize("model", [LSTM, {"use_attention": True, "attention_dim": 8}])
def test_a_memory_is_trained_on_whole_sequences(model: dict[str, Any]) -> None:
    with small(model=model | {"fcnet_hiddens": [4]}).build() as algorithm:
        before = algorithm.get_policy().get_weights()
        algorithm.train()
        after = algorithm.get_policy().get_weights()
    assert any(name.startswith("memory.") and (after[name] != before[name]).any() for name in after)


def test_nested_spaces_are_trained_on() -> None:
    with small().environment(Nested).build() as algorithm:
        stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert None not in stats.values()
        assert Nested.action_space.contains(algorithm.compute_single_action(NESTED.sample()))


def test_two_agents_with_two_policies_have_their_own_staleness() -> None:
    config = small(policies=["0", "1"], policies_to_train=["0"])
    config.environment("reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1", "num_agents": 2})
    with config.build() as algorithm:
        learned = algorithm.train()["info"]["learner"]
    assert learned.keys() == {"0"}
    assert learned["0"]["learner_stats"]["staleness"] >= 0.0


AGAIN = {"num_sgd_iter": 2, "minibatch_buffer_size": 2, "replay_proportion": 0.75, "replay_buffer_num_slots": 3}


@pytest.mark.parametrize("settings", [{}, {"broadcast_interval": 3}, AGAIN, AGAIN | {"max_staleness": 3}])
def test_a_run_resumes_bit_for_bit_whatever_waits_in_the_queue(settings: dict[str, Any], tmp_path: Path) -> None:
    config = small(**{"num_envs_per_worker": 3, "train_batch_size": 90} | settings)
    with config.build() as one:
        for _ in range(3):
            one.train()
        assert one.queue.state()["batches"][-1]["env_steps"] > 0, "a batch that is not whole yet"  # type: ignore[attr-defined]
        path = one.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(path) as two:
            for _ in range(4):
                results = [algorithm.train() for algorithm in (one, two)]
                assert results[0]["episode_reward_mean"] == results[1]["episode_reward_mean"]
                assert results[0]["info"] == results[1]["info"]
                np.testing.assert_array_equal(*(each.learners.weights()["default_policy"] for each in (one, two)))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"num_sgd_iter": 4, "minibatch_buffer_size": 4, "max_staleness": 14}, "over 16 updates.*Set it to 15 or more"),
        ({"replay_proportion": 0.5, "replay_buffer_num_slots": 2, "max_staleness": 0}, "earlier updates. Set it to 1"),
    ],
)
def test_a_limit_that_would_drop_every_batch_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        small(**settings).build()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("num_aggregation_workers", 2, "the driver puts the batches together. Leave it at 0."),
        ("replay_proportion", 0.5, "no old fragment is kept with replay_buffer_num_slots=0. Set it to 1 or more."),
        ("replay_proportion", -0.5, "must be at least 0"),
        ("minibatch_buffer_size", 0, "must be at least 1 batches"),
        ("max_staleness", -1, "must be at least 0 updates"),
        ("max_staleness", 0, "broadcast_interval=2 publishes so old weights. Set it to 1 or more."),
        ("opt_type", "rmsprop", "the optimizer is chosen by optimizer"),
        ("learner_queue_timeout", 10, "sample_timeout_s limits a fragment"),
        ("sample_async", True, "workers always sample ahead of the learner here"),
        ("broadcast_interval", 0, "must be at least 1 updates"),
        ("learner_queue_size", 0, "must be at least 1"),
        ("vtrace_clip_rho_threshold", 0.0, "must be larger than 0"),
        ("use_critic", False, "use_critic=False cannot bootstrap"),
        ("clip_param", 0.1, "IMPALA has no such setting"),
        ("target_update_frequency", 2, "IMPALA has no such setting"),
        ("replay_buffer_config", {}, "IMPALA has no such setting"),
    ],
)
def test_what_cannot_have_an_effect_is_refused_by_name(key: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=key) as refusal:
        small(**{"broadcast_interval": 2} | {key: value}).build()
    assert problem in str(refusal.value)
    assert str(refusal.value).count("\n- ") <= 1, "one message"


def test_limits_of_ratios_that_are_not_computed_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    small(vtrace=False, vtrace_clip_rho_threshold=2.0).build().stop()
    assert "vtrace_clip_rho_threshold=2.0 has no effect without vtrace." in caplog.messages
    caplog.clear()
    small(vtrace_clip_rho_threshold=2.0).build().stop()
    assert not caplog.messages


def test_settings_of_batches_that_are_not_learned_from_again_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small(minibatch_buffer_size=4, replay_buffer_num_slots=5).build().stop()
    assert "minibatch_buffer_size=4 has no effect with num_sgd_iter=1." in caplog.messages
    assert "replay_buffer_num_slots=5 has no effect without replay_proportion." in caplog.messages
    caplog.clear()
    small(**AGAIN).build().stop()
    assert not caplog.messages


def test_each_pass_over_a_batch_has_its_own_likelihood_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[torch.Tensor]()
    prepare = IMPALALearner.prepare

    def prepared(self: IMPALALearner, batch: Rollout) -> Any:
        columns = prepare(self, batch)
        seen.append(columns["advantages"])
        return columns

    monkeypatch.setattr(IMPALALearner, "prepare", prepared)
    with small(num_sgd_iter=2, lr=0.1).reporting(min_sample_timesteps_per_iteration=0).build() as algorithm:
        for _ in range(2):
            algorithm.train()
        assert algorithm.timestep == 40, "one batch"
    assert not torch.allclose(*seen)


def test_settings_of_it_are_refused_by_others() -> None:
    with pytest.raises(ConfigError, match="broadcast_interval"):
        PPOConfig.from_dict({"broadcast_interval": 2})


def test_a_batch_is_filled_fragment_by_fragment_however_many_workers_there_are() -> None:
    IMPALAConfig().environment("CartPole-v1").rollouts(num_rollout_workers=7).validate()
    with pytest.raises(ConfigError, match="a batch becomes 600 steps.*Set rollout_fragment_length to 42"):
        IMPALAConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=12).validate()


def test_an_algorithm_of_your_own_may_change_its_loss() -> None:
    class Plain(IMPALALearner):
        def loss(self, outputs: Any, minibatch: Any) -> Any:
            found = super().loss(outputs, minibatch)
            return found._replace(value=2.0 * found.value)

    batch = rollout()
    one, two = learner(IMPALALearner, IMPALAConfig()), learner(Plain, IMPALAConfig())
    ratio = two.update(batch, 0).stats["grad_gnorm"] / one.update(batch, 0).stats["grad_gnorm"]
    assert ratio == pytest.approx(2.0, rel=1e-4)
