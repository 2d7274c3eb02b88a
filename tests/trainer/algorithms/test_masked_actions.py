"""Algorithms in environments that raise for excluded actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from masked import ACTIONS, Allowed, AllowedOfSeveral, OtherKey, OverAtTheEnd, Stuck
from test_custom_critics import parts

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.registry import config_class
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import CheckpointError, ConfigError, EnvironmentError
from reef.nn.distributions.discrete import EXCLUDED

REPLAYING = {"num_steps_sampled_before_learning_starts": 32, "train_batch_size": 16}
SMALL_MEMORY = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4}
APPO_SMALL = {"train_batch_size": 40, "rollout_fragment_length": 20, "use_kl_loss": True, "num_sgd_iter": 2}
CASES: list[tuple[str, type[Allowed], dict[str, Any]]] = [
    ("PPO", Allowed, {}),
    ("PPO", AllowedOfSeveral, {}),
    ("PPO", OverAtTheEnd, {"observation_filter": "MeanStdFilter"}),
    ("PPO", OtherKey, {"action_mask_key": "legal"}),
    ("PPO", OtherKey, {"policies": {"default_policy": {"config": {"action_mask_key": "legal"}}}}),
    ("PPO", Allowed, {"model": SMALL_MEMORY}),
    ("PPO", Allowed, {"exploration_config": {"type": "Random"}}),
    ("PPO", AllowedOfSeveral, {"exploration_config": {"type": "Random"}}),
    ("PPO", AllowedOfSeveral, {"exploration_config": {"type": "StochasticSampling", "random_timesteps": 1000}}),
    ("PPO", Allowed, {"exploration_config": {"type": "Curiosity", "feature_dim": 4}}),
    ("A2C", Allowed, {"train_batch_size": 40}),
    ("A3C", Allowed, {"num_rollout_workers": 0}),
    ("PG", Allowed, {"train_batch_size": 40}),
    ("DDPPO", Allowed, {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2}),
    ("IMPALA", Allowed, {"train_batch_size": 40, "rollout_fragment_length": 20}),
    ("APPO", Allowed, APPO_SMALL),
    ("ES", Allowed, {"train_batch_size": 16, "episodes_per_batch": 4, "noise_size": 100_000}),
    ("SimpleQ", OverAtTheEnd, REPLAYING),
    ("DQN", OverAtTheEnd, REPLAYING),
    ("DQN", Allowed, REPLAYING | {"double_q": False, "n_step": 3, "num_atoms": 5, "noisy": True}),
    ("DQN", OverAtTheEnd, REPLAYING | {"model": SMALL_MEMORY}),
    ("DQN", Allowed, REPLAYING | {"exploration_config": {"type": "SoftQ", "temperature": 5.0}}),
    ("DQN", Allowed, REPLAYING | {"exploration_config": {"type": "ParameterNoise", "random_timesteps": 50}}),
    ("APEX", Allowed, REPLAYING | {"num_rollout_workers": 0, "num_gpus": 0.0}),
    ("SAC", OverAtTheEnd, REPLAYING),
    ("SAC", Allowed, REPLAYING | {"twin_q": False, "observation_filter": "MeanStdFilter"}),
    ("SAC", Allowed, REPLAYING | parts(read=0)),
]


def settings(name: str, env: Any, given: dict[str, Any]) -> AlgorithmConfig:
    own: dict[str, Any] = {"seed": 1, "env": env, "model": {"fcnet_hiddens": [16]}, "num_envs_per_worker": 2}
    if name == "PPO":
        own |= {"train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 2, "entropy_coeff": 0.01}
    merged = own | given | {"model": {"fcnet_hiddens": [16]} | given.get("model", {})}
    config = config_class(name)().update_from_dict(merged)
    return config.reporting(min_sample_timesteps_per_iteration=100, min_time_s_per_iteration=None)


@pytest.mark.parametrize(("name", "env", "given"), CASES)
def test_excluded_actions_are_never_taken_and_training_stays_finite(name: str, env: Any, given: dict[str, Any]) -> None:
    with settings(name, env, given).build() as algorithm:
        for _ in range(2):
            result = algorithm.train()
        assert result["timesteps_total"] >= 100
        for values in algorithm.get_policy().get_weights().values():
            assert np.isfinite(values).all()
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert all(abs(value) < 1e6 for value in stats.values()), stats
        obs, _ = env().reset(seed=3)
        key = env.key
        for explore in (True, False):
            actions = [np.atleast_1d(algorithm.compute_single_action(obs, explore=explore))[0] for _ in range(30)]
            assert all(obs[key][action] for action in actions)


def test_a_policy_says_no_excluded_action_to_a_person() -> None:
    with settings("PPO", Allowed, {}).build() as algorithm:
        policy, rest = algorithm.get_policy(), np.zeros(ACTIONS, np.float32)
        for allowed in range(ACTIONS):
            obs = {"action_mask": np.eye(ACTIONS, dtype=np.int8)[allowed], "hint": rest}
            assert policy.compute_single_action(obs, explore=True)[0] == allowed
            batch = {name: values[None] for name, values in obs.items()}
            logits, _ = policy.model({"obs": batch})
            assert (logits[0] > EXCLUDED).tolist() == obs["action_mask"].astype(bool).tolist()


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_it_learns_which_of_the_allowed_actions_is_best(name: str) -> None:
    quick: dict[str, Any] = {"lr": 0.02, "train_batch_size": 200, "num_sgd_iter": 6, "gamma": 0.0}
    if name == "DQN":
        quick = {
            "lr": 0.01,
            "gamma": 0.0,
            "num_steps_sampled_before_learning_starts": 100,
            "target_network_update_freq": 50,
        }
        quick["exploration_config"] = {"type": "EpsilonGreedy", "epsilon_timesteps": 300}
    with settings(name, Allowed, quick).build() as algorithm:
        for _ in range(10):
            algorithm.train()
        env, right = Allowed(), 0
        obs, _ = env.reset(seed=5)
        for _ in range(100):
            obs, reward, *_ = env.step(algorithm.compute_single_action(obs, explore=False))
            right += reward == 1.0
    assert right >= 80, "half of them by chance"


def test_a_target_never_hopes_for_an_excluded_action() -> None:
    """The values of the successor's excluded actions, however large, are not in the target."""
    for given in ({}, {"double_q": False}, {"num_atoms": 11, "v_min": 0.0, "v_max": 100.0, "double_q": False}):
        with settings("DQN", Allowed, REPLAYING | given).build() as algorithm:
            learner: Any = algorithm.learners.learners["default_policy"]  # type: ignore[attr-defined]
            check_targets(learner)


def check_targets(learner: Any) -> None:
    import torch

    policy, rows = learner.policy, torch.zeros(1, 2 * ACTIONS)
    values = []
    for excluded in range(ACTIONS):
        rows[0, :ACTIONS] = 1.0
        rows[0, excluded] = 0.0
        q_values = learner.target.network.q_values(rows)[0]
        assert q_values[excluded] == EXCLUDED
        none, gamma = torch.zeros(1, dtype=torch.bool), torch.ones(1)
        found = learner.targets(torch.zeros(1), rows, none, gamma)
        if found.dim() == 2:
            found = (found * policy.atoms).sum(-1)
        values.append(abs(float(found.detach()) - float(q_values.max())))
    assert max(values) < 1e-3


def test_a_step_without_any_allowed_action_is_named() -> None:
    text = "'action_mask' excludes every action in step 3 of the fragment"
    with settings("PPO", Stuck, {}).build() as algorithm, pytest.raises(EnvironmentError, match=text):
        algorithm.train()


def test_an_observation_without_the_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="action_mask_key='legal': the observation space Dict.* has no such key"):
        settings("PPO", Allowed, {"action_mask_key": "legal"}).build()


class TwoMasks(Allowed):
    """Either of two keys can be the mask."""

    def __init__(self, _: Any = None) -> None:
        super().__init__()
        self.observation_space["legal"] = spaces.MultiBinary(ACTIONS)

    def observe(self) -> dict[str, Any]:
        found = super().observe()
        return found | {"legal": found[self.key]}


def test_weights_fit_the_mask_that_they_learned_with(tmp_path: Path) -> None:
    text = "action_mask_key is action_mask, in this one legal.*with action_mask_key='legal'. Set the former"
    with settings("PPO", TwoMasks, {}).build() as one:
        path = one.save(tmp_path / "here")
        with settings("PPO", TwoMasks, {"action_mask_key": "legal"}).build() as other:
            with pytest.raises(CheckpointError, match=text):
                other.restore(path)
            state = one.state()
            del state["networks"]["default_policy"]["parts"]["action_mask_key"]  # as in older checkpoints
            other.set_state(state)


class OneMasked(MultiAgentEnv):
    """Agent "a" has a mask of another name, agent "b" none; `b` is free."""

    def __init__(self, _: Any = None) -> None:
        self.possible_agents = ["a", "b"]
        self.masked, self.free = OtherKey(), gym.make("CartPole-v1")
        self.observation_spaces = {"a": self.masked.observation_space, "b": self.free.observation_space}
        self.action_spaces = {"a": self.masked.action_space, "b": self.free.action_space}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.agents = ["a", "b"]
        return {"a": self.masked.reset(seed=seed)[0], "b": self.free.reset(seed=seed)[0]}, {}

    def step(self, actions: dict[str, Any]) -> Any:
        """`masked` raises for an excluded action; the episode ends with that of `free`."""
        a, b = self.masked.step(actions["a"]), self.free.step(actions["b"])
        return (
            {"a": a[0], "b": b[0]},
            {"a": a[1], "b": b[1]},
            {"a": b[2], "b": b[2], "__all__": b[2]},
            {"a": b[3], "b": b[3], "__all__": b[3]},
            {},
        )


def test_one_of_several_policies_may_have_a_mask_of_its_own() -> None:
    policies = {"a": {"config": {"action_mask_key": "legal"}}, "b": {}}
    with settings("PPO", OneMasked, {"policies": policies}).build() as algorithm:
        algorithm.train()
        masks = [algorithm.get_policy(name).action_mask for name in policies]
        assert [mask and mask.key for mask in masks] == ["legal", None]
    wrong = settings("PPO", OneMasked, {"policies": list(policies), "action_mask_key": "legal"})
    with pytest.raises(ConfigError, match="no such key.*A policy without one has null in its config"):
        wrong.build()


def test_recorded_episodes_have_their_masks(tmp_path: Path) -> None:
    given = {"output": str(tmp_path)}
    with settings("PPO", Allowed, given).build() as algorithm:
        algorithm.train()
    for name, rows in (("BC", 32), ("CQL", 16), ("IQL", 16)):
        config = settings(
            name,
            Allowed,
            {"input_": str(tmp_path), "train_batch_size": rows, "num_envs_per_worker": 1}
            | {"min_train_timesteps_per_iteration": None},
        )
        config.evaluation(evaluation_interval=1, evaluation_duration=2)
        with config.build() as algorithm:
            result = algorithm.train()
            assert result["evaluation"]["episodes_this_iter"] == 2
            assert json.dumps(result["info"]["learner"]["default_policy"]["learner_stats"]).find("NaN") == -1


def test_a_recorded_action_that_its_mask_excludes_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = {"next_obs": {"action_mask": [1] * ACTIONS, "hint": [0.0] * ACTIONS}, "reward": 1, "truncated": False}
    steps = [
        whole | {"obs": {"action_mask": [1, 1, 0, 0], "hint": [0.0] * ACTIONS}, "action": a, "terminated": end}
        for a, end in ((0, False), (1, True))
    ]
    wrong = [steps[0], steps[1] | {"action": 2}]
    file = tmp_path / "episodes.json"
    file.write_text("".join(json.dumps({"steps": each}) + "\n" for each in (steps, wrong)))
    given = {"input_": str(file), "train_batch_size": 8, "num_envs_per_worker": 1, "beta": 0.0}
    with settings("MARWIL", Allowed, given | {"min_train_timesteps_per_iteration": None}).build() as algorithm:
        assert "line 2: step 2 has an action that the mask in its observation excludes" in caplog.text
        stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert abs(stats["policy_loss"]) < 10


def test_without_a_mask_nothing_is_slower() -> None:
    """The fast forms stay for policies without a mask."""
    for config in (PPOConfig(), DQNConfig()):
        with config.environment("CartPole-v1").build() as algorithm:
            assert algorithm.get_policy().fast_actor is not None
