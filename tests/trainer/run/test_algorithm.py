"""An algorithm: training, acting, weights, checkpoints.

It tests reef.run.inference too.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from safetensors.torch import save_file

from reef.algorithms.dqn import DQN, DQNConfig
from reef.algorithms.ppo import PPO, PPOConfig
from reef.config import AlgorithmConfig
from reef.errors import CheckpointError, ConfigError, EnvironmentError, ResourceError, WorkerError
from reef.rollout.local_workers import LocalWorkers
from reef.run.algorithm import Algorithm
from reef.run.prometheus import RunState
from reef.types import DEFAULT_POLICY


def config(**evaluation: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=4)
        .training(train_batch_size=128, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(**evaluation)
        .debugging(seed=0)
    )


def test_training_counts_what_it_does() -> None:
    with config().build() as algorithm:
        results = [algorithm.train() for _ in range(2)]
    assert [result["training_iteration"] for result in results] == [1, 2]
    assert results[1]["timesteps_total"] == results[1]["num_env_steps_trained"] == 256
    assert results[1]["timesteps_this_iter"] == 128
    assert "evaluation" not in results[0]


def test_the_time_of_a_step_is_told_by_part() -> None:
    with config().build() as algorithm:
        perf = algorithm.train()["sampler_perf"]
    parts = {"inference", "env_wait", "raw_obs_processing", "action_processing", "env_render"}
    assert perf.keys() == {f"mean_{part}_ms" for part in parts | {"sample"}}
    nothing = {"mean_action_processing_ms", "mean_env_render_ms"}  # discrete actions need no processing
    assert {name for name in perf if perf[name] <= 0} == nothing
    assert sum(perf[f"mean_{part}_ms"] for part in parts) < perf["mean_sample_ms"]


def test_an_iteration_lasts_as_long_as_asked_for() -> None:
    with config().reporting(min_sample_timesteps_per_iteration=300).build() as algorithm:
        assert algorithm.train()["timesteps_total"] == 384


def test_an_iteration_learns_from_as_many_steps_as_asked_for() -> None:
    with config().reporting(min_train_timesteps_per_iteration=300).build() as algorithm:
        assert algorithm.train()["num_env_steps_trained"] == 384


@pytest.mark.parametrize(
    ("interval", "expected"), [(1, [1, 1, 1, 1]), (2, [0, 1, 0, 1]), (0, [0] * 4), (None, [0] * 4)]
)
def test_evaluation_comes_at_its_interval(interval: int | None, expected: list[int]) -> None:
    with config(evaluation_interval=interval, evaluation_duration=2).build() as algorithm:
        assert [int("evaluation" in algorithm.train()) for _ in range(4)] == expected


def test_evaluation_runs_exactly_the_episodes_with_the_newest_weights() -> None:
    with config(evaluation_duration=7).build() as algorithm:
        algorithm.train()
        metrics = algorithm.evaluate()["evaluation"]
        assert metrics["episodes_this_iter"] == 7
        assert {"episode_reward_mean", "episode_reward_max", "episode_reward_min", "episode_len_mean"} <= metrics.keys()
        evaluated = algorithm.evaluation.workers.local_worker()
        assert not evaluated.config.explore
        assert np.array_equal(evaluated.get_weights()[DEFAULT_POLICY], algorithm.learners.weights()[DEFAULT_POLICY])
        assert algorithm.timestep == 128, "evaluation steps are not training steps"


def test_evaluation_by_timesteps_comes_close() -> None:
    with config(evaluation_duration=200, evaluation_duration_unit="timesteps").build() as algorithm:
        assert 200 <= algorithm.evaluate()["evaluation"]["timesteps_this_iter"] < 204


def test_the_latest_evaluation_is_attached_when_asked_for() -> None:
    settings = config(evaluation_interval=2, evaluation_duration=2, always_attach_evaluation_results=True)
    with settings.build() as algorithm:
        results = [algorithm.train() for _ in range(3)]
    assert results[2]["evaluation"] == results[1]["evaluation"]
    assert results[2]["evaluation"]["training_iteration"] == 2
    run_state = RunState()
    run_state.report(results[2])
    assert run_state.progress()["evaluation"]["iteration"] == 2


def test_a_batch_that_no_memory_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Algorithm) -> dict[str, Any]:
        raise MemoryError("Unable to allocate 146. TiB")

    monkeypatch.setattr(PPO, "training_step", full)
    expected = r"train_batch_size=128: training needs more memory than there is \(Unable to allocate 146. TiB\). Lower"
    with config().build() as algorithm, pytest.raises(ResourceError, match=expected):
        algorithm.train()


def test_a_batch_that_no_number_counts_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train_batch_size=10{21}: must be at most 1e\+12 steps"):
        config().training(train_batch_size=10**21).validate()


def filtered_pendulum() -> PPOConfig:
    return (
        PPOConfig()
        .environment("Pendulum-v1")
        .rollouts(observation_filter="MeanStdFilter")
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
        .debugging(seed=0)
    )


def test_single_actions_are_filtered_unsquashed_and_deterministic_on_request() -> None:
    with filtered_pendulum().build() as algorithm:
        algorithm.train()
        obs = np.array([1.0, 0.0, 5.0], np.float32)
        seen = algorithm.workers.local_worker().filters[DEFAULT_POLICY].state()
        actions = {float(algorithm.compute_single_action(obs, explore=False)[0]) for _ in range(3)}
        assert len(actions) == 1
        assert -2 <= actions.pop() <= 2
        explored = {float(algorithm.compute_single_action(obs, explore=True)[0]) for _ in range(3)}
        assert len(explored) > 1
        after = algorithm.workers.local_worker().filters[DEFAULT_POLICY].state()
        assert seen["stat"]["count"] == after["stat"]["count"], "acting for somebody teaches the filter nothing"
        action, state, extras = algorithm.compute_single_action(obs, full_fetch=True)
        assert action.shape == (1,)
        assert state == []
        assert extras["action_dist_inputs"].shape == (2,)


def test_an_observation_that_no_action_can_be_had_for_is_named() -> None:
    with config().build() as algorithm:
        with pytest.raises(ConfigError, match=r"has shape \(7,\), expected \("):
            algorithm.compute_single_action(np.zeros(7))
        with pytest.raises(ConfigError, match="NaN or infinite"):
            algorithm.compute_single_action(np.full(algorithm.get_policy().observation_layout.shape, np.nan))
        with pytest.raises(ConfigError, match=r"no value of Box.*the first that reset\(\) and step\(\) return"):
            algorithm.compute_single_action(gym.make("CartPole-v1").reset())
    lake = config().environment("FrozenLake-v1")
    with (
        lake.build() as algorithm,
        pytest.raises(ConfigError, match=r"99 has 99 at index \[0\], expected 0 to 15 of Discrete\(16\)"),
    ):
        algorithm.compute_single_action(99)


def test_what_was_stopped_neither_trains_nor_evaluates() -> None:
    algorithm = config().build()
    algorithm.stop()
    for call in (algorithm.train, algorithm.evaluate):
        with pytest.raises(WorkerError, match="the algorithm was stopped"):
            call()


def test_a_discrete_action_is_a_number_an_environment_takes() -> None:
    with config().build() as algorithm:
        env = gym.make("CartPole-v1")
        obs, _ = env.reset(seed=0)
        env.step(algorithm.compute_single_action(obs))


def test_an_unknown_policy_is_named() -> None:
    with config().build() as algorithm, pytest.raises(KeyError, match="PolicyID 'other' not found in PolicyMap"):
        algorithm.get_policy("other")


def test_weights_set_by_hand_reach_learners_and_workers() -> None:
    with config().build() as algorithm:
        named = algorithm.get_weights()
        named[DEFAULT_POLICY]["pi.bias"][:] = np.nan
        with pytest.raises(ConfigError, match=r"pi\.bias: has values that are NaN or infinite"):
            algorithm.set_weights(named)
        named[DEFAULT_POLICY]["pi.bias"][:] = 5.0
        algorithm.set_weights(named)
        assert (algorithm.get_policy().get_weights()["pi.bias"] == 5).all()
        algorithm.publish_weights()
        assert (algorithm.get_policy().get_weights()["pi.bias"] == 5).all()


@pytest.mark.parametrize("config_class", [PPOConfig, DQNConfig])
def test_filters_are_merged_with_each_step_and_not_by_publishing(config_class: type[AlgorithmConfig]) -> None:
    def waiting() -> int:
        count: int = algorithm.workers.local_worker().filters[DEFAULT_POLICY].state()["delta"]["count"]
        return count

    small = {"env": "CartPole-v1", "observation_filter": "MeanStdFilter", "model": {"fcnet_hiddens": [4]}}
    with config_class.from_dict(small | {"train_batch_size": 128, "rollout_fragment_length": 128}).build() as algorithm:
        algorithm.sample()
        algorithm.publish_weights()
        assert waiting() > 0
        algorithm.synchronize_filters()
        assert waiting() == 0
        algorithm.train()
        assert waiting() == 0


def fives(algorithm: Algorithm) -> dict[str, Any]:
    return {name: np.full_like(value, 5.0) for name, value in algorithm.get_policy().get_weights().items()}


def learned(algorithm: Algorithm) -> Any:
    return algorithm.learners.weights()[DEFAULT_POLICY]


def test_weights_that_were_saved_or_evaluated_reach_the_workers_before_they_sample_again(tmp_path: Path) -> None:
    with config().build() as algorithm:
        sent: list[Any] = []
        publish = algorithm.workers.set_weights
        algorithm.workers.set_weights = lambda weights, *rest: (  # type: ignore[method-assign]
            sent.append(weights[DEFAULT_POLICY].copy()),
            publish(weights, *rest),
        )
        algorithm.get_policy().set_weights(fives(algorithm))
        algorithm.save(tmp_path / "set")
        assert not sent, "a checkpoint waits for no worker"
        algorithm.train()
        assert (sent[0] == 5).all()


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_weights_set_in_a_policy_are_what_is_trained_on_and_saved(kind: type[AlgorithmConfig], tmp_path: Path) -> None:
    small = kind().environment("CartPole-v1").training(lr=1e-6, model={"fcnet_hiddens": [8]}).debugging(seed=0)
    with small.build() as algorithm, small.build() as other:
        algorithm.get_policy().set_weights(fives(algorithm))
        path = algorithm.save(tmp_path / "set")
        other.restore(path)
        assert (learned(other) == 5).all(), "a checkpoint holds them"
        algorithm.get_policy().set_weights({name: value * 2 for name, value in fives(algorithm).items()})
        algorithm.restore(path)
        assert (learned(algorithm) == 5).all(), "what was set before a restore is gone"
        algorithm.get_policy().set_weights({name: value * 2 for name, value in fives(algorithm).items()})
        algorithm.train()
        assert np.allclose(learned(algorithm), 10, atol=0.05), "training goes on from them"
        assert np.array_equal(algorithm.workers.local_worker().get_weights()[DEFAULT_POLICY], learned(algorithm))
        if isinstance(algorithm, DQN):
            targets = algorithm.learners.state()[DEFAULT_POLICY]["target"]["weights"]
            assert np.allclose(targets, 10, atol=0.05), "the targets are of the new network"


def test_a_policy_that_was_set_is_evaluated() -> None:
    with config(evaluation_duration=1).build() as algorithm:
        algorithm.get_policy().set_weights(fives(algorithm))
        algorithm.evaluate()
        assert (algorithm.evaluation.workers.local_worker().get_weights()[DEFAULT_POLICY] == 5).all()


def test_a_model_is_imported_from_a_file(tmp_path: Path) -> None:
    with config().build() as algorithm:
        weights = {name: torch.from_numpy(value) for name, value in fives(algorithm).items()}
        torch.save(weights, tmp_path / "net.pt")
        algorithm.import_model(tmp_path / "net.pt")
        assert (learned(algorithm) == 5).all()
        actor = {("actor" if name == "pi.bias" else name): value * 2 for name, value in weights.items()}
        save_file(actor, tmp_path / "net.safetensors")
        with pytest.raises(ConfigError, match=r"pi\.bias: is missing(.|\n)*actor: is not a parameter"):
            algorithm.import_model(tmp_path / "net.safetensors")
        assert (learned(algorithm) == 5).all()
        algorithm.import_model(tmp_path / "net.safetensors", names={"actor": "pi.bias"})
        assert (learned(algorithm) == 10).all()


def test_workers_can_be_asked_anything() -> None:
    with config().build() as algorithm:
        assert algorithm.workers.foreach_worker(lambda worker: worker.worker_index) == [0]
        assert algorithm.workers.foreach_worker_with_index(lambda worker, index: index) == [0]


def test_restore_goes_into_an_existing_algorithm(tmp_path: Path) -> None:
    with config().build() as one, config().build() as two:
        one.train()
        two.restore(one.save(tmp_path / "here"))
        assert two.iteration == 1
        assert two.train()["timesteps_total"] == 256


def test_a_restored_evaluation_runs_the_same_episodes(tmp_path: Path) -> None:
    with config(evaluation_duration=3).build() as one, config(evaluation_duration=3).build() as two:
        one.evaluate()
        two.restore(one.save(tmp_path / "here"))
        assert one.evaluate() == two.evaluate()


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        PPO.from_checkpoint(tmp_path / "nowhere")


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    with DQNConfig().environment("CartPole-v1").build() as other:
        path = other.save(tmp_path / "checkpoint")
    with config().build() as algorithm, pytest.raises(CheckpointError, match="written by DQN, but PPO is to be"):
        algorithm.restore(path)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    """Also one with as many weights."""
    with config().build() as one, config().training(model={"fcnet_activation": "relu"}).build() as two:
        path = one.save(tmp_path / "here")
        message = "with model.fcnet_activation='tanh', and this one with model.fcnet_activation='relu'. Set the former"
        with pytest.raises(CheckpointError, match=message):
            two.restore(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"conv_activation": "tanh"}, {}),
        ({"fcnet_hiddens": [8, 6]}, {"fcnet_hiddens": [8], "post_fcnet_hiddens": [6]}),
        ({"fcnet_hiddens": [], "fcnet_activation": "relu"}, {"fcnet_hiddens": []}),
    ],
)
def test_a_checkpoint_goes_into_the_same_network_by_other_settings(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    with config().training(model=before).build() as one, config().training(model=after).build() as two:
        two.restore(one.save(tmp_path / "here"))
        assert np.array_equal(two.learners.weights()[DEFAULT_POLICY], one.learners.weights()[DEFAULT_POLICY])


def test_a_checkpoint_of_other_spaces_is_refused(tmp_path: Path) -> None:
    with config().build() as one, config().environment("Acrobot-v1").build() as two:
        path = one.save(tmp_path / "here")
        with pytest.raises(
            CheckpointError, match=r"in its network \S+ is \[[\d, ]+\], in this one \[.*observation and"
        ):
            two.restore(path)


def test_a_checkpoint_that_does_not_tell_its_network_is_known_by_its_size() -> None:
    with config().build() as one, config().training(model={"fcnet_hiddens": [9]}).build() as two:
        state = {key: part for key, part in one.state().items() if key != "networks"}
        with pytest.raises(CheckpointError, match=r"does not fit: its network has \d+ weights.*model settings"):
            two.set_state(state)
        one.set_state(state)


@pytest.mark.parametrize(("before", "after"), [("NoFilter", "MeanStdFilter"), ("MeanStdFilter", "NoFilter")])
def test_a_checkpoint_of_other_observations_is_refused(tmp_path: Path, before: str, after: str) -> None:
    filtered, other = (config().rollouts(observation_filter=name) for name in (before, after))
    with filtered.build() as one, other.build() as two:
        path = one.save(tmp_path / "here")
        weights, version = two.learners.weights()[DEFAULT_POLICY], two.policy_version
        with pytest.raises(CheckpointError, match=f"Set observation_filter='{before}'"):
            two.restore(path)
        assert two.policy_version == version
        assert np.array_equal(two.learners.weights()[DEFAULT_POLICY], weights), "nothing has changed"


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    with config().build() as one, config().training(optimizer={"type": "SGD"}).build() as two:
        path = one.save(tmp_path / "adam")
        with pytest.raises(CheckpointError, match=r"with optimizer.type='Adam', not 'SGD'. Set the former, or train"):
            two.restore(path)


def test_amsgrad_may_be_switched_on_in_a_restore(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with config().build() as one, config().training(optimizer={"amsgrad": True}).build() as two:
        one.train()
        two.restore(one.save(tmp_path / "here"))
        assert "optimizer.amsgrad=True" in caplog.text
        assert two.train()["training_iteration"] == 2


def test_what_cannot_be_restored_or_published_leaves_nobody_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with config().build() as algorithm:
        path = algorithm.save(tmp_path / "here")
    stopped: list[object] = []
    monkeypatch.setattr(LocalWorkers, "stop", lambda workers: stopped.append(workers))
    monkeypatch.setattr(LocalWorkers, "set_state", broken)
    with pytest.raises(
        CheckpointError, match=r"here: its workers cannot be restored \(RuntimeError: it broke"
    ) as raised:
        PPO.from_checkpoint(path)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert len(stopped) == 1
    monkeypatch.setattr(LocalWorkers, "set_weights", broken)
    with pytest.raises(RuntimeError, match="it broke"):
        config().build()
    assert len(stopped) == 2
    monkeypatch.undo()
    monkeypatch.setattr(LocalWorkers, "stop", lambda workers: stopped.append(workers))
    monkeypatch.setattr(PPO, "setup", broken)
    with pytest.raises(RuntimeError, match="it broke"):
        config().build()
    assert len(stopped) == 3


def broken(*args: object) -> None:
    raise RuntimeError("it broke")


def test_a_restore_under_another_horizon_begins_new_episodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shorter = config().environment(horizon=9)  # no longer the vectorised CartPole
    with config().build() as one, shorter.build() as two:
        one.train()
        two.restore(one.save(tmp_path / "here"))
        assert "new ones begin" in caplog.text
        assert two.train()["training_iteration"] == 2


def test_contradictions_of_ppo() -> None:
    with pytest.raises(ConfigError, match="sgd_minibatch_size=512"):
        config().training(sgd_minibatch_size=512).build()
    with pytest.raises(ConfigError, match="use_critic=False"):
        config().training(use_critic=False).build()


class Breaking(CartPoleEnv):
    """Raises in its 20th step, and so does each that is made in its place."""

    def __init__(self, env_config: Any) -> None:
        super().__init__()
        self.left = 10**9 if env_config.vector_index else 20

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("it broke")
        return super().step(action)


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_training_goes_on_where_one_environment_is_restarted(mode: str) -> None:
    settings = config().environment(Breaking).rollouts(batch_mode=mode)
    with pytest.raises(EnvironmentError, match="it broke"), settings.copy().build() as fragile:
        fragile.train()
    with settings.fault_tolerance(restart_failed_sub_environments=True).build() as algorithm:
        results = [algorithm.train() for _ in range(2)]
        restarts = algorithm.workers.local_worker().env.env.restarts
    assert restarts >= 2
    sampled = results[1]["num_env_steps_sampled"]
    assert sampled == results[1]["num_env_steps_trained"]
    if mode == "truncate_episodes":
        assert sampled == 256 - restarts, "each failed step is a dead one"
    else:
        assert sampled >= 256


def test_the_compilers_mode_of_a_worker_is_the_one_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("reef.nn.policies.Policy.compile_acting", lambda self, **options: asked.append(options))
    config().framework(torch_compile_worker=True, torch_compile_worker_dynamo_mode="max-autotune").build().stop()
    assert asked == [{"backend": "inductor", "mode": "max-autotune"}]


def test_a_compiled_worker_acts_the_same() -> None:
    compiled = config().framework(torch_compile_worker=True, torch_compile_worker_dynamo_backend="aot_eager")
    with config().build() as one, compiled.build() as two:
        first, second = one.train(), two.train()
    assert first["episode_reward_mean"] == second["episode_reward_mean"]
    eager, traced = (result["info"]["learner"][DEFAULT_POLICY]["learner_stats"] for result in (first, second))
    assert eager == pytest.approx(traced, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_worker_acts_by_the_newest_weights(backend: str) -> None:
    settings = config().training(lr=0.05)
    settings.framework(torch_compile_worker=True, torch_compile_worker_dynamo_backend=backend)
    with settings.build() as algorithm:
        outputs = []
        learner = algorithm.learners.learners[DEFAULT_POLICY]  # type: ignore[attr-defined]
        for _ in range(3):
            rollout = algorithm.workers.sample(10)[0].rollouts[DEFAULT_POLICY]
            with torch.inference_mode():
                expected = learner.policy.dist_inputs(torch.from_numpy(rollout.obs.copy()).flatten(0, 1))
                outputs.append(learner.policy.dist_inputs(torch.ones(1, 4)))
            acted = rollout.extras["action_dist_inputs"].reshape(expected.shape)
            np.testing.assert_allclose(acted, expected, rtol=1e-4, atol=1e-5)
            algorithm.train()
    assert min((one - two).abs().max() for one, two in pairwise(outputs)) > 0.01, "and they are not the ones before"


def test_actions_of_several_observations_come_by_their_names() -> None:
    observations = {"left": np.array([1.0, 0.0, 5.0]), "right": np.array([0.0, 1.0, -5.0])}
    with filtered_pendulum().build() as algorithm:
        algorithm.train()
        found = algorithm.compute_actions(observations, explore=False)
        for name, obs in observations.items():
            np.testing.assert_allclose(found[name], algorithm.compute_single_action(obs, explore=False), rtol=1e-5)
        bounded = algorithm.compute_actions(observations, explore=False, unsquash_actions=False, clip_actions=True)
        np.testing.assert_allclose(found["left"], 2 * bounded["left"], rtol=1e-5)
        actions, states, extras = algorithm.compute_actions(observations, explore=False, full_fetch=True)
        assert actions.keys() == states.keys() == extras.keys() == observations.keys()
        assert states["left"] == [] and extras["right"]["action_dist_inputs"].shape == (2,)
        assert algorithm.compute_actions({}) == {} and algorithm.compute_actions({}, full_fetch=True) == ({}, {}, {})
        with pytest.raises(ConfigError, match="takes observations by agent, .* not a ndarray. Use compute_single_acti"):
            algorithm.compute_actions(observations["left"])  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"prev_reward has \['left'\], expected one for each observation"):
            algorithm.compute_actions(observations, prev_reward={"left": 1.0})
        with pytest.raises(ConfigError, match=r"info=\{'a': 1\} has no effect"):
            algorithm.compute_actions(observations, info={"left": {}, "right": {"a": 1}})


def test_states_and_earlier_actions_of_several_observations_come_by_their_names() -> None:
    model = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    settings = PPOConfig().environment("CartPole-v1").training(train_batch_size=40, sgd_minibatch_size=40, model=model)
    obs = {name: np.full(4, 0.1 * (1 + name), np.float32) for name in range(3)}
    with settings.training(num_sgd_iter=1).debugging(seed=0).build() as algorithm:
        actions, states, _ = algorithm.compute_actions(obs, full_fetch=True, explore=False)
        earlier = {"prev_action": {0: 1, 1: 0, 2: 1}, "prev_reward": {0: 2.0, 1: 0.0, 2: 1.0}}
        _, after, extras = algorithm.compute_actions(obs, states, explore=False, **earlier)
        for name, value in obs.items():
            given = {key: values[name] for key, values in earlier.items()}
            _, own, more = algorithm.compute_single_action(value, states[name], explore=False, **given)
            np.testing.assert_allclose(extras[name]["action_dist_inputs"], more["action_dist_inputs"], atol=1e-6)
            for mine, theirs in zip(after[name], own, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-6)
            assert isinstance(actions[name], int)
        first = algorithm.compute_actions(obs, states | {0: None}, explore=False)[2][0]["action_dist_inputs"]
        begun = algorithm.compute_single_action(obs[0], full_fetch=True, explore=False)[2]["action_dist_inputs"]
        np.testing.assert_allclose(first, begun, atol=1e-6)
        for wrong in (5, states[0][:1], ["a"] * 4, [[[1.0], [1.0, 2.0]]] * 4, [np.zeros(3)] * 4):
            with pytest.raises(ConfigError, match=r"^state(=.* is no list of arrays| has arrays of the shapes)"):
                algorithm.compute_actions(obs, states | {0: wrong})
            with pytest.raises(ConfigError, match=r"^state(=.* is no list of arrays| has arrays of the shapes)"):
                algorithm.compute_single_action(obs[0], wrong)  # type: ignore[arg-type]


def test_a_timestep_says_where_the_schedules_of_the_exploration_are() -> None:
    settings = DQNConfig().environment("CartPole-v1").debugging(seed=0)
    epsilon = {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.0, "epsilon_timesteps": 100}
    obs = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    with settings.exploration(exploration_config=epsilon).build() as algorithm:

        def actions(timestep: int | None) -> set[int]:
            return {algorithm.compute_single_action(obs, explore=True, timestep=timestep) for _ in range(40)}

        best = algorithm.compute_single_action(obs, explore=False)
        assert actions(None) == actions(0) == {0, 1}
        assert actions(100) == {best}
        many = dict.fromkeys(range(40), obs)
        assert set(algorithm.compute_actions(many, explore=True, timestep=100).values()) == {best}
        assert set(algorithm.compute_actions(many, explore=True, timestep=0).values()) == {0, 1}
