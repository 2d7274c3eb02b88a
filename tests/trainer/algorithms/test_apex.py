"""Ape-X: first priorities by the worker, weights that are not always the newest, resuming, and what it refuses.

It tests reef.replay.step_values and reef.algorithms.apex_ddpg too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reef.algorithms.apex import Apex, ApexDQNConfig
from reef.algorithms.apex_ddpg import ApexDDPGConfig
from reef.algorithms.dqn import DQNConfig
from reef.batch import Rollout, Sample
from reef.errors import ConfigError, ResourceError
from reef.replay.shards import LocalShards
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm

BASE: dict[str, Any] = {
    "num_rollout_workers": 0,
    "num_gpus": 0.0,
    "train_batch_size": 16,
    "rollout_fragment_length": 12,
    "num_steps_sampled_before_learning_starts": 48,
    "num_replay_buffer_shards": 3,
    "min_sample_timesteps_per_iteration": 60,
    "max_weight_sync_delay": 50,
    "model": {"fcnet_hiddens": [8]},
    "seed": 5,
}


def small(**settings: Any) -> ApexDQNConfig:
    return ApexDQNConfig.from_dict(BASE | {"hiddens": [8]} | settings).environment("CartPole-v1")


def apex(config: Any) -> Apex:
    algorithm = config.build()
    assert isinstance(algorithm, Apex)
    return algorithm


def rollout_of(worker: RolloutWorker) -> Rollout:
    return worker.sample().rollouts["default_policy"]


def test_the_defaults_are_those_of_rllib() -> None:
    config = ApexDQNConfig()
    assert (config.n_step, config.num_rollout_workers, config.num_gpus) == (3, 32, 1.0)
    assert (config.replay_buffer_config.capacity, config.num_replay_buffer_shards) == (2_000_000, 4)
    assert (config.train_batch_size, config.rollout_fragment_length) == (512, 50)
    assert (config.target_network_update_freq, config.max_weight_sync_delay) == (500_000, 400)
    assert config.num_steps_sampled_before_learning_starts == 50_000
    assert config.exploration_config == {"type": "PerWorkerEpsilonGreedy"}
    assert config.training_intensity == 1.0 and config.worker_side_prioritization


def test_without_a_gpu_the_default_names_the_fix() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ResourceError, match="Set num_gpus=0 to train on the CPU"):
        ApexDQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).build()


@pytest.mark.parametrize("model", [{"fcnet_hiddens": [8]}, {"fcnet_hiddens": [8], "fcnet_activation": "silu"}])
def test_the_worker_estimates_values_by_the_weights_that_acted(model: dict[str, Any]) -> None:
    worker = RolloutWorker(small(model=model, num_envs_per_worker=3, rollout_fragment_length=40))
    policy: Any = worker.policy_map["default_policy"]
    for _ in range(2):
        rollout = rollout_of(worker)
        assert rollout.done.any() and rollout.extras.keys() == {"q_values", "next_values"}
        with torch.inference_mode():
            values = policy.q_values(torch.from_numpy(rollout.obs.reshape(-1, 4))).reshape(40, 3, 2)
            following = policy.state_values(torch.from_numpy(rollout.next_obs.reshape(-1, 4).copy())).reshape(40, 3)
        taken = np.take_along_axis(values.numpy(), rollout.actions[..., None], -1)[..., 0]
        np.testing.assert_allclose(rollout.extras["q_values"], taken, atol=1e-5)
        bootstrapped = ~rollout.terminated
        np.testing.assert_allclose(
            rollout.extras["next_values"][bootstrapped], following.numpy()[bootstrapped], atol=1e-5
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"worker_side_prioritization": False},
        {"num_atoms": 11, "v_min": 0.0, "v_max": 20.0},
        {"replay_buffer_config": {"prioritized_replay": False}},
    ],
)
def test_without_first_priorities_workers_estimate_nothing(settings: dict[str, Any]) -> None:
    assert rollout_of(RolloutWorker(small(**settings))).extras == {}
    with apex(small(**settings)) as algorithm:
        algorithm.train()


def test_first_priorities_are_the_td_errors_of_the_learner() -> None:
    """While its target network is the one that acted, and without double Q-learning, both compute the same."""
    config = small(double_q=False, num_replay_buffer_shards=1, replay_buffer_config={"prioritized_replay_alpha": 1.0})
    with apex(config.training(num_steps_sampled_before_learning_starts=10**6)) as algorithm:
        algorithm.train()
        assert isinstance(algorithm.shards, LocalShards)
        shard = algorithm.shards.shards[0]
        stored = shard.state()["buffers"]["default_policy"]
        learner: Any = algorithm.learners.learners["default_policy"]  # type: ignore[attr-defined]
        batch = shard.sample(16)["default_policy"]
        errors = learner.update(batch, 0).rows["td_errors"].reshape(-1)
        rows = batch.extras["indices"]
        np.testing.assert_allclose(np.abs(errors) + 1e-6, stored["priorities"][rows], rtol=1e-4, atol=1e-5)
        assert len(set(stored["priorities"].tolist())) > 10


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("delay", [1, 50, 10**6])
def test_a_run_resumes_bit_for_bit_however_old_the_weights_of_its_worker_are(
    delay: int, filtered: bool, tmp_path: Path
) -> None:
    config = small(num_envs_per_worker=2, max_weight_sync_delay=delay, training_intensity=4.0)
    config.rollouts(observation_filter="MeanStdFilter" if filtered else "NoFilter")
    config.reporting(min_sample_timesteps_per_iteration=0)
    with config.build() as one:
        for _ in range(7):
            one.train()
        path = one.save(tmp_path / "checkpoint")
        assert one.counters["num_env_steps_trained"] > 0
        with Algorithm.from_checkpoint(path) as two:
            for _ in range(12):
                results = [algorithm.train() for algorithm in (one, two)]
                assert results[0]["episode_reward_mean"] == results[1]["episode_reward_mean"]
                assert results[0]["info"] == results[1]["info"]
                np.testing.assert_array_equal(*(each.learners.weights()["default_policy"] for each in (one, two)))
                np.testing.assert_array_equal(
                    *(each.get_weights()["default_policy"]["value.output.bias"] for each in (one, two))
                )


@pytest.mark.parametrize(("workers", "named"), [(0, True), (2, False)])
def test_requests_to_shards_of_this_process_are_named(workers: int, named: bool) -> None:
    config = small(max_requests_in_flight_per_replay_worker=5)
    policy = apex(config).get_policy()
    texts = list(config.rollouts(num_rollout_workers=workers).ignored_settings(policy))
    key = "max_requests_in_flight_per_replay_worker=5"
    assert texts == [f"{key} has no effect without rollout workers in processes of their own."] * named


def test_an_iteration_ends_while_learning_starts_later_than_the_memory_is_full() -> None:
    settings = {"num_steps_sampled_before_learning_starts": 600, "replay_buffer_config": {"capacity": 60}}
    with apex(small(**settings)) as algorithm:
        results = [algorithm.train() for _ in range(12)]
    assert [result["timesteps_total"] for result in results[:3]] == [72, 144, 216]
    trained = [result["num_env_steps_trained"] for result in results]
    assert trained[7] == 0 < trained[11]


def test_a_checkpoint_of_more_shards_is_restored_as_far_as_there_are_shards(tmp_path: Path) -> None:
    with small(num_replay_buffer_shards=2).build() as one:
        one.train()
        path = one.save(tmp_path / "checkpoint")
    with apex(small(num_replay_buffer_shards=1)) as two:
        two.restore(path)
        assert two.shards.sizes == [36]
        two.train()


def test_shards_that_were_recreated_are_counted_on_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_one(*_: Any) -> dict[str, Any]:
        two.shards.restarts[1] += 1
        return {}

    with apex(small()) as one:
        one.counters["num_replay_shards_recreated"] = 2
        path = one.save(tmp_path / "checkpoint")
    with apex(small(min_sample_timesteps_per_iteration=0)) as two:
        two.restore(path)
        assert two.train()["counters"]["num_replay_shards_recreated"] == 2
        monkeypatch.setattr("reef.algorithms.apex.async_replay", lose_one)
        assert [two.train()["counters"]["num_replay_shards_recreated"] for _ in range(2)] == [3, 4]


def test_only_episodes_of_the_workers_that_explore_least_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)  # of the workers' weights, as some first policies hold the pole for a whole fragment
    shared = {"num_rollout_workers": 4, "rollout_fragment_length": 100}
    workers = [RolloutWorker(small(**shared), index) for index in (1, 2, 3, 4)]
    samples = [worker.sample() for worker in workers]
    assert all(sample.episodes for sample in samples)

    def reported(algorithm: Apex) -> list[bool]:
        found = []
        for sample in samples:
            before = algorithm.metrics.samples.window.total
            algorithm.count_sampled(sample)
            found.append(algorithm.metrics.samples.window.total > before)
        return found

    for settings, expected in (({}, [False, False, True, True]), ({"explore": False}, [True] * 4)):
        with apex(small(**settings)) as algorithm:
            monkeypatch.setattr(type(algorithm.workers), "healthy", [1, 2, 3, 4])
            local: Any = algorithm.workers.local_worker()
            local.runners["default_policy"].exploration.per_worker = True
            assert reported(algorithm) == expected
            assert algorithm.timestep == 400
            if not settings:
                local.runners["default_policy"].exploration.per_worker = False
                assert reported(algorithm) == [True] * 4, "all explore alike"
            monkeypatch.undo()


def test_several_policies_have_their_own_transitions_in_each_shard() -> None:
    config = small(policies=["0", "1"], policies_to_train=["0"])
    config.environment("reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1", "num_agents": 2})
    with apex(config) as algorithm:
        learned = algorithm.train()["info"]["learner"]
        assert learned.keys() == {"0"} and learned["0"]["learner_stats"]["staleness"] >= 0.0
        assert isinstance(algorithm.shards, LocalShards)
        assert all(shard.buffers.keys() == {"0", "1"} for shard in algorithm.shards.shards)


def test_evaluation_estimates_no_values_and_uses_the_newest_weights() -> None:
    config = small(evaluation_interval=1, evaluation_duration=2, max_weight_sync_delay=10**6)
    with config.build() as algorithm:
        assert algorithm.train()["evaluation"]["episodes_this_iter"] == 2
        worker = algorithm.evaluation.workers.local_worker()
        np.testing.assert_array_equal(
            worker.get_weights()["default_policy"], algorithm.learners.weights()["default_policy"]
        )
        assert rollout_of(worker).extras == {}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("training_intensity", None, "Set it to 1.0, or to train_batch_size / 4"),
        ("n_step", 20, "Set rollout_fragment_length to 20 or more"),
        ("sample_async", True, "workers always sample ahead of the learner here"),
        ("timeout_s_replay_manager", 1.0, "the flow waits for whichever comes first"),
        ("num_replay_buffer_shards", 0, "must be at least 1"),
        ("max_weight_sync_delay", 0, "must be at least 1 steps"),
        ("broadcast_interval", 2, "APEX has no such setting"),
        ("clip_param", 0.1, "APEX has no such setting"),
        ("policy_delay", 2, "APEX has no such setting"),
    ],
)
def test_what_cannot_have_an_effect_is_refused_by_name(key: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=key) as refusal:
        small(**{key: value}).build()
    assert problem in str(refusal.value)
    assert str(refusal.value).count("\n- ") <= 1, "one message"


@pytest.mark.parametrize(
    ("workers", "batch", "length"), [(32, 512, 1), (0, 32, 2), (3, 143, 2), (3, 144, None), (0, 47, None)]
)
def test_sums_of_rewards_fit_into_the_shortest_fragment(workers: int, batch: int, length: int | None) -> None:
    given = {"rollout_fragment_length": "auto", "num_rollout_workers": workers, "train_batch_size": batch}
    config = small(n_step=3, num_envs_per_worker=16, **given)
    if length is None:
        config.validate()
        return
    with pytest.raises(ConfigError, match=r"n_step=3: .* Set rollout_fragment_length to 3 or more") as refusal:
        config.validate()
    assert f"rollout_fragment_length='auto' makes fragments of {length} steps" in str(refusal.value)


@pytest.mark.parametrize("key", ["max_weight_sync_delay", "num_replay_buffer_shards", "worker_side_prioritization"])
def test_settings_of_it_are_refused_by_others(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        DQNConfig.from_dict({key: 2})


def test_a_fragment_is_sent_to_a_shard_without_what_only_the_metrics_need() -> None:
    with apex(small()) as algorithm:
        seen: list[Sample] = []
        shards: Any = algorithm.shards
        add = shards.shards[0].add
        shards.shards[0].add = lambda sample: (seen.append(sample), add(sample))
        algorithm.train()
    assert seen and all(sample.episodes == [] for sample in seen)


def continuous(**settings: Any) -> ApexDDPGConfig:
    return ApexDDPGConfig.from_dict(BASE | settings).environment("Pendulum-v1")


def test_ddpg_has_its_own_defaults_and_those_of_ape_x() -> None:
    config = ApexDDPGConfig()
    assert config.exploration_config == {"type": "PerWorkerOrnsteinUhlenbeckNoise"}
    assert (config.n_step, config.train_batch_size, config.num_rollout_workers) == (3, 512, 32)
    assert (config.lr, config.tau, config.model.fcnet_hiddens) == (1e-3, 2e-3, [400, 300])
    assert config.replay_buffer_config.capacity == 2_000_000


@pytest.mark.parametrize("twin_q", [False, True])
def test_a_worker_of_ddpg_estimates_values_by_the_smaller_critic(twin_q: bool) -> None:
    worker = RolloutWorker(continuous(twin_q=twin_q, num_envs_per_worker=2))
    policy: Any = worker.policy_map["default_policy"]
    rollout = rollout_of(worker)
    with torch.inference_mode():
        obs, following = (torch.from_numpy(each.reshape(-1, 3).copy()) for each in (rollout.obs, rollout.next_obs))
        q_values = policy.critics(obs, torch.from_numpy(rollout.actions).reshape(-1, 1)).amin(0)
        next_values = policy.critics(following, torch.tanh(policy.actor(following))).amin(0)
    np.testing.assert_allclose(rollout.extras["q_values"].reshape(-1), q_values, atol=1e-5)
    np.testing.assert_allclose(rollout.extras["next_values"].reshape(-1), next_values, atol=1e-5)


@pytest.mark.parametrize(("prioritized", "all_of_it"), [(True, True), (False, False)])
def test_workers_of_ddpg_get_the_critics_where_they_need_them(prioritized: bool, all_of_it: bool) -> None:
    config = continuous(worker_side_prioritization=prioritized)
    one, two = RolloutWorker(config, 1), RolloutWorker(config, 2)
    two.set_acting_weights(one.acting_weights(), 1, 0)
    mine, theirs = (each.policy_map["default_policy"].get_weights() for each in (one, two))
    same = {name.partition(".")[0] for name in mine if np.array_equal(mine[name], theirs[name])}
    assert "actor" in same
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine) is all_of_it


@pytest.mark.parametrize(("key", "value"), [("double_q", False), ("num_atoms", 51), ("hiddens", [4])])
def test_settings_of_dqn_are_refused_with_ddpg(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{key}: APEX_DDPG has no such setting"):
        continuous(**{key: value})
