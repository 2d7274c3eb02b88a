"""Settings that no other test shows: each changes what is trained, or how."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef import A3CConfig, DQNConfig, PPOConfig
from reef.config.aliases import MOVED, RENAMED
from reef.errors import ConfigError

LSTM, ATTENTION = {"use_lstm": True, "lstm_cell_size": 4}, {"use_attention": True, "attention_dim": 8}


class Push(gym.Env[Any, Any]):
    """Keeps the actions that it got. Every observation is the same; episodes have 5 steps."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Box(0.0, 10.0, (1,))

    def __init__(self, env_config: Any) -> None:
        self.actions: list[float] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(float(action[0]))
        self.steps += 1
        return np.ones(2, np.float32), 1.0, self.steps == 5, False, {}


class Picture(gym.Env[Any, Any]):
    """Noise of 16 x 16 pixels."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (16, 16, 1)), gym.spaces.Discrete(2)

    def __init__(self, env_config: Any) -> None:
        self.random = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.random.random((16, 16, 1), np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], float(action), False, self.random.random() < 0.2, {}


def config(env: Any = "CartPole-v1", model: dict[str, Any] | None = None, **settings: Any) -> PPOConfig:
    sizes = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1, "lr": 0.01}
    made = PPOConfig().environment(env).debugging(seed=1).training(model={"fcnet_hiddens": [4]} | (model or {}))
    return made.update_from_dict(sizes | settings)


def trained(env: Any, model: dict[str, Any]) -> dict[str, Any]:
    with config(env, model).build() as algorithm:
        algorithm.train()
        return algorithm.get_policy().get_weights()


def differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if {name: value.shape for name, value in one.items()} != {name: value.shape for name, value in other.items()}:
        return True
    return any((one[name] != other[name]).any() for name in one)


@pytest.mark.parametrize(
    ("env", "usual", "changed"),
    [
        ("CartPole-v1", {}, {"fcnet_hiddens": [4, 3]}),
        ("CartPole-v1", {}, {"fcnet_activation": "relu"}),
        ("CartPole-v1", {}, {"post_fcnet_hiddens": [3]}),
        ("CartPole-v1", {}, {"vf_share_layers": True}),
        ("Pendulum-v1", {}, {"free_log_std": True}),
        (Picture, {}, {"conv_filters": [[2, 4, 4]]}),
        (Picture, {"conv_filters": [[2, 4, 4]]}, {"conv_filters": [[2, [4, 2], 4]]}),
        (Picture, {}, {"conv_activation": "tanh"}),
        ("CartPole-v1", {}, LSTM),
        ("CartPole-v1", LSTM, {"lstm_cell_size": 5}),
        ("CartPole-v1", LSTM, {"lstm_use_prev_action": True}),
        ("CartPole-v1", LSTM, {"lstm_use_prev_reward": True}),
        ("CartPole-v1", LSTM, {"recurrent_cell": "gru"}),
        ("CartPole-v1", LSTM, {"max_seq_len": 3}),
        ("CartPole-v1", {}, ATTENTION),
        ("CartPole-v1", ATTENTION, {"attention_dim": 4}),
        ("CartPole-v1", ATTENTION, {"attention_num_transformer_units": 2}),
        ("CartPole-v1", ATTENTION, {"attention_num_heads": 2}),
        ("CartPole-v1", ATTENTION, {"attention_head_dim": 5}),
        ("CartPole-v1", ATTENTION, {"attention_memory_inference": 1}),
        ("CartPole-v1", ATTENTION, {"attention_memory_training": 1}),
        ("CartPole-v1", ATTENTION, {"attention_position_wise_mlp_dim": 3}),
        ("CartPole-v1", ATTENTION, {"attention_init_gru_gate_bias": 0.0}),
        ("CartPole-v1", ATTENTION, {"attention_use_n_prev_actions": 1}),
        ("CartPole-v1", ATTENTION, {"attention_use_n_prev_rewards": 1}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_setting_of_the_model_changes_what_is_trained(env: Any, usual: dict[str, Any], changed: Any) -> None:
    assert not differ(trained(env, usual), trained(env, usual)), "the seed decides"
    assert differ(trained(env, usual), trained(env, usual | changed))


def test_swish_is_another_name_of_silu() -> None:
    silu, swish = (trained("CartPole-v1", {"fcnet_activation": name}) for name in ("silu", "swish"))
    assert not differ(silu, swish)


@pytest.mark.parametrize("framework", ["tf", "tf2", "tfe"])
def test_another_framework_is_refused_with_the_one_there_is(framework: str) -> None:
    with pytest.raises(ConfigError, match=f"framework='{framework}': expected 'torch'"):
        config().framework(framework).validate()


@pytest.mark.parametrize("explore", [True, False])
def test_without_exploring_every_step_has_the_best_action(explore: bool) -> None:
    with config(Push, explore=explore).build() as algorithm:
        (sample,) = algorithm.sample()
        best = algorithm.compute_single_action(np.ones(2, np.float32), explore=False)
        (envs,) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.actions))
    assert sample.env_steps == 64
    assert (len(set(envs[0][-64:])) == 1) is not explore
    assert explore or envs[0][-1] == pytest.approx(best[0])


@pytest.mark.parametrize(("normalize", "expected"), [(True, 7.5), (False, 0.5)])
def test_normalised_actions_are_stretched_to_the_bounds(normalize: bool, expected: float) -> None:
    with config(Push, normalize_actions=normalize, clip_actions=True).build() as algorithm:
        policy = algorithm.get_policy()
        named = {name: np.zeros_like(value) for name, value in policy.get_weights().items()}
        named["pi.bias"][0] = 0.5  # the mean of the actions
        policy.set_weights(named)
        assert algorithm.compute_single_action(np.ones(2, np.float32), explore=False)[0] == pytest.approx(expected)


def test_an_iteration_repeats_its_step_until_its_time_is_over() -> None:
    with config(min_time_s_per_iteration=0.2).build() as algorithm:
        result = algorithm.train()
    assert result["time_this_iter_s"] >= 0.2
    assert result["timesteps_total"] > 64
    assert result["timesteps_total"] % 64 == 0


def test_the_compilers_backend_of_a_worker_is_the_one_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("reef.nn.policies.Policy.compile_acting", lambda self, **options: asked.append(options))
    config(torch_compile_worker=True, torch_compile_worker_dynamo_backend="eager").build().stop()
    assert [options["backend"] for options in asked] == ["eager"]
    config(torch_compile_worker=False).build().stop()
    assert len(asked) == 1


def test_the_variables_of_the_driver_are_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REEF_PROBE", "before")
    config(extra_python_environs_for_driver={"REEF_PROBE": "after"}).build().stop()
    assert os.environ["REEF_PROBE"] == "after"


@pytest.mark.parametrize(("size", "files"), [(1, 12), (10**6, 1)])
def test_a_file_of_recorded_episodes_ends_at_its_size(size: int, files: int, tmp_path: Path) -> None:
    with config(Push, output=str(tmp_path), output_max_file_size=size).build() as algorithm:
        algorithm.train()  # 12 episodes, and 4 steps of another one
    assert len(list(tmp_path.glob("output-*.json"))) == files


@pytest.mark.parametrize(("older", "name"), {**RENAMED, **MOVED}.items(), ids=[*RENAMED, *MOVED])
def test_an_older_spelling_means_the_setting_with_one_warning(older: str, name: str) -> None:
    key, _, inner = name.partition(".")
    kind = next(kind for kind in (PPOConfig, DQNConfig, A3CConfig) if key in kind.groups)
    value = getattr(kind(), key)
    value = getattr(value, inner) if inner else value
    with pytest.warns(FutureWarning, match=f"{older!r} is now called {name!r}") as warnings:
        made = kind.from_dict({older: value})
    assert len(warnings) == 1
    assert made.to_dict() == kind().to_dict()


@pytest.mark.parametrize("by", ["value", "norm", "global_norm"])
def test_gradients_are_clipped_as_the_settings_say(by: str) -> None:
    """One step of gradient descent with rate 1 moves the weights by the clipped gradient."""
    limit, descent = 1e-3, {"lr": 1.0, "optimizer": {"type": "SGD"}, "sgd_minibatch_size": 64}
    with config(grad_clip=limit, grad_clip_by=by, **descent).build() as algorithm:
        before = algorithm.get_policy().get_weights()
        algorithm.train()
        after = algorithm.get_policy().get_weights()
    moved = [after[name] - before[name] for name in before]
    parts = {
        "value": [np.abs(part).max() for part in moved],
        "norm": [np.linalg.norm(part) for part in moved],
        "global_norm": [np.linalg.norm([np.linalg.norm(part) for part in moved])],
    }
    assert max(parts[by]) == pytest.approx(limit, rel=0.01), "at the limit, and not above"
