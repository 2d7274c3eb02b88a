"""What holds for every algorithm of the registry: build, train, save, restore, act the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded import recorded
from tests.trainer.distributed.eight_steps import EightSteps
from torch import Tensor, nn

from reef.algorithms.registry import ALGORITHMS, config_class
from reef.config import AlgorithmConfig
from reef.errors import EnvironmentError
from reef.run.algorithm import Algorithm

HERE = "test_every_algorithm"
IN_PROCESS: dict[str, Any] = {"num_rollout_workers": 0, "num_gpus": 0.0}
APEX_SMALL = IN_PROCESS | {
    "num_steps_sampled_before_learning_starts": 64,
    "train_batch_size": 16,
    "num_replay_buffer_shards": 2,
    "rollout_fragment_length": 10,
    "max_weight_sync_delay": 50,
}
SMALL: dict[str, dict[str, Any]] = {
    "APEX": APEX_SMALL,
    "APEX_DDPG": APEX_SMALL,
    "A2C": {"train_batch_size": 80},
    "A3C": {"lambda_": 0.9},
    "ES": {"train_batch_size": 64, "episodes_per_batch": 4, "noise_size": 100_000},
    "APPO": {"train_batch_size": 100, "num_sgd_iter": 2, "target_update_frequency": 3},
    "IMPALA": {"train_batch_size": 100, "broadcast_interval": 3},
    "PG": {"train_batch_size": 64},
    "DDPPO": {"train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 2},
    "PPO": {"train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 2},
    "DQN": {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 16, "n_step": 3},
    "SimpleQ": {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 16, "n_step": 3},
    "SAC": {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 16, "n_step": 3},
    "DDPG": {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 16, "n_step": 3},
    "BC": {"train_batch_size": 32},
    "CQL": {"train_batch_size": 16, "num_actions": 3, "bc_iters": 4},
    "IQL": {"train_batch_size": 16},
    "MARWIL": {"train_batch_size": 32, "moving_average_sqd_adv_norm_update_rate": 0.1},
    "TD3": {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 16, "n_step": 3},
    "TQC": {"num_steps_sampled_before_learning_starts": 64, "train_batch_size": 16, "n_step": 3},
}
CONTINUOUS = {"APEX_DDPG", "CQL", "DDPG", "IQL", "SAC", "TD3", "TQC"}  # algorithms for actions that are real numbers
OFFLINE = {"BC", "CQL", "IQL", "MARWIL"}  # which learn from recorded episodes
QUICK: dict[str, dict[str, Any]] = {  # settings by which it learns to repeat what it is shown, within 1600 steps
    "A2C": {"lr": 0.02, "train_batch_size": 20, "rollout_fragment_length": 5},
    "BC": {"lr": 0.02, "train_batch_size": 50, "min_train_timesteps_per_iteration": None},
    "CQL": {"lr": 0.01, "train_batch_size": 32, "tau": 0.05, "bc_iters": 0, "num_actions": 4, "min_q_weight": 0.1},
    "IQL": {"lr": 0.01, "train_batch_size": 32, "tau": 0.05, "expectile": 0.95},
    "MARWIL": {"min_train_timesteps_per_iteration": None}
    | {"lr": 0.02, "train_batch_size": 50, "moving_average_sqd_adv_norm_start": 1.0},
    "APEX": IN_PROCESS
    | {"lr": 0.02, "hiddens": [16], "train_batch_size": 32, "rollout_fragment_length": 5, "training_intensity": 2.0}
    | {"num_steps_sampled_before_learning_starts": 100, "max_weight_sync_delay": 20, "target_network_update_freq": 50}
    | {"exploration_config": {"type": "PerWorkerEpsilonGreedy", "epsilon_timesteps": 300}},
    "APEX_DDPG": IN_PROCESS
    | {"lr": 0.01, "tau": 0.05, "train_batch_size": 64, "rollout_fragment_length": 5, "training_intensity": 16.0}
    | {"num_steps_sampled_before_learning_starts": 100, "max_weight_sync_delay": 20}
    | {"exploration_config": {"type": "PerWorkerOrnsteinUhlenbeckNoise", "random_timesteps": 200}},
    "A3C": {"lr": 0.02, "rollout_fragment_length": 5},
    "ES": {"lr": 0.2, "train_batch_size": 1, "episodes_per_batch": 32, "noise_stdev": 0.5, "noise_size": 10_000},
    "APPO": {"lr": 0.02, "train_batch_size": 40, "rollout_fragment_length": 5, "num_sgd_iter": 2},
    "IMPALA": {"lr": 0.02, "train_batch_size": 20, "rollout_fragment_length": 5},
    "PG": {"lr": 0.02, "train_batch_size": 24, "rollout_fragment_length": 3},
    "DDPPO": {"lr": 0.02, "train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 4},
    "PPO": {"lr": 0.02, "train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 4},
    "DQN": {
        "lr": 0.02,
        "hiddens": [16],
        "num_steps_sampled_before_learning_starts": 100,
        "target_network_update_freq": 50,
        "exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 300},
    },
    "SimpleQ": {
        "lr": 0.02,
        "num_steps_sampled_before_learning_starts": 100,
        "target_network_update_freq": 50,
        "exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 300},
    },
    "SAC": {"lr": 0.01, "num_steps_sampled_before_learning_starts": 100, "train_batch_size": 64, "tau": 0.05},
    "DDPG": {
        "lr": 0.01,
        "num_steps_sampled_before_learning_starts": 100,
        "train_batch_size": 64,
        "tau": 0.05,
        "exploration_config": {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 200, "scale_timesteps": 1000},
    },
    "TD3": {
        "lr": 0.01,
        "num_steps_sampled_before_learning_starts": 100,
        "train_batch_size": 64,
        "tau": 0.05,
        "exploration_config": {"type": "GaussianNoise", "random_timesteps": 200, "stddev": 0.1},
    },
    "TQC": {"lr": 0.01, "num_steps_sampled_before_learning_starts": 100, "train_batch_size": 64, "tau": 0.05}
    | {"n_quantiles": 5, "top_quantiles_to_drop_per_net": 1},
}
AT_ONCE = {"gamma": 0.0, "min_sample_timesteps_per_iteration": 4000}  # no reward is for an earlier action
IN_BATCHES = AT_ONCE | {"lr": 0.01, "rollout_fragment_length": 10, "train_batch_size": 80, "entropy_coeff": 0.0}
IN_PASSES = AT_ONCE | {"lr": 0.01, "train_batch_size": 400, "sgd_minibatch_size": 100, "num_sgd_iter": 8}
PRECISE: dict[str, dict[str, Any]] = {  # settings by which algorithms for all actions come near to real numbers
    "A2C": IN_BATCHES,
    "A3C": AT_ONCE | {"lr": 0.01, "rollout_fragment_length": 20, "entropy_coeff": 0.0},
    "APPO": IN_BATCHES,
    "BC": {"lr": 0.01, "min_train_timesteps_per_iteration": 20_000},
    "DDPPO": IN_PASSES | {"vf_clip_param": None, "kl_coeff": 0.2},
    "ES": {"lr": [[0, 0.05], [12_000, 0.01]], "noise_stdev": 0.15, "l2_coeff": 0.0, "episodes_per_batch": 96}
    | {"observation_filter": "NoFilter", "min_sample_timesteps_per_iteration": 12_000},
    "IMPALA": IN_BATCHES,
    "MARWIL": {"gamma": 0.0, "lr": 0.01, "beta": 3.0, "moving_average_sqd_adv_norm_update_rate": 0.01}
    | {"min_train_timesteps_per_iteration": 20_000},
    "PG": AT_ONCE | {"lr": 0.01, "train_batch_size": 120},
    "PPO": IN_PASSES | {"vf_clip_param": None},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ALGORITHMS),
    ("A2C", {"use_gae": False, "normalize_advantages": True, "optimizer": {"type": "RMSpropTF"}}),
    ("A3C", {"max_requests_in_flight_per_sampler_worker": 3, "lambda_": 0.8}),
    ("APPO", {"target_update_frequency": 3, "tau": 0.5, "use_kl_loss": True, "vtrace": False}),
    ("IMPALA", {"broadcast_interval": 3, "lambda_": 0.8, "vtrace_clip_rho_threshold": 2.0}),
    ("IMPALA", {"batch_mode": "complete_episodes", "use_critic": False}),
    ("IMPALA", {"vtrace": False, "max_requests_in_flight_per_sampler_worker": 1}),
    ("MARWIL", {"beta": 3.0, "moving_average_sqd_adv_norm_update_rate": 0.01, "vf_coeff": 0.5}),
    ("PPO", {"kl_coeff": 0.0, "use_gae": False, "grad_clip": 1.0}),
    ("DQN", {"n_step": 3, "double_q": False, "dueling": False, "replay_buffer_config": {"prioritized_replay": False}}),
    ("DQN", {"num_atoms": 11, "v_min": 0.0, "v_max": 3.0}),
    ("DQN", {"noisy": True}),
    ("DQN", {"model": {"use_lstm": True, "lstm_cell_size": 16, "max_seq_len": 8}}),
    ("DDPG", {"n_step": 2, "use_huber": True, "replay_buffer_config": {"prioritized_replay": False}}),
    ("TD3", {"policy_delay": 3, "target_network_update_freq": 8, "tau": 0.2}),
    ("SAC", {"n_step": 2, "twin_q": False, "replay_buffer_config": {"prioritized_replay": True}}),
    ("TQC", {"n_critics": 3, "n_quantiles": 5, "replay_buffer_config": {"prioritized_replay": True}}),
    ("SimpleQ", {"n_step": 2, "tau": 0.2, "replay_buffer_config": {"prioritized_replay": True}}),
    ("SAC", {"target_network_update_freq": 8, "tau": 0.2, "initial_alpha": 0.1, "target_entropy": -3.0}),
]


class Echo(gymnasium.Env[Any, Any]):
    """Reward 1 for repeating the observation; three steps an episode, so that the best return is 3."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(3)

    def __init__(self, **_: Any) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.shown = 0, int(self.np_random.integers(3))
        return self.shown, {}

    @property
    def best(self) -> Any:
        """The action that is rewarded most."""
        return self.shown

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.shown)
        self.steps, self.shown = self.steps + 1, int(self.np_random.integers(3))
        return self.shown, reward, self.steps == 3, False, {}


class EchoAngle(Echo):
    """The nearer the action to the observed index - 1, in halves of its range, the better."""

    action_space = spaces.Box(-4.0, 4.0, (1,))  # type: ignore[assignment]

    @property
    def best(self) -> Any:
        return np.array([2.0 * (self.shown - 1)], np.float32)

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        distance = abs(float(action[0] - self.best[0]))
        shown, _, *rest = super().step(0)
        return shown, -distance, *rest  # type: ignore[return-value]


class EchoBoth(Echo):
    """Reward 1 for the observed index, and less the farther the number beside it is away."""

    action_space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-4.0, 4.0, (1,))])  # type: ignore[assignment]

    @property
    def best(self) -> Any:
        return self.shown, np.array([2.0 * (self.shown - 1)], np.float32)

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        (index, (number,)), (_, (angle,)) = action, self.best
        distance = abs(float(number) - float(angle))
        shown, right, *rest = super().step(index)
        return shown, right - distance, *rest  # type: ignore[return-value]


def env_of(name: str) -> str:
    return "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"


class Own(nn.Module):
    """A network of your own, with a layer that draws in training."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        layers = nn.Linear(observation_space.shape[0], 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, num_outputs + 1)
        self.body = nn.Sequential(*layers)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.body(obs)
        return outputs[:, :-1], outputs[:, -1]


class Remembering(nn.Module):
    """A network of your own that sums up what it sees of an episode."""

    state_shapes: ClassVar[dict[str, tuple[int, ...]]] = {"total": (4,)}

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(observation_space.shape[0], 4), nn.Linear(4, num_outputs + 1)

    def forward(
        self, obs: Tensor, begins: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        total, totals = state["total"], []
        for t in range(obs.shape[1]):
            total = torch.tanh(total * ~begins[:, t, None] + self.inner(obs[:, t]))
            totals.append(total)
        outputs = self.out(torch.stack(totals, 1))
        return outputs[..., :-1], outputs[..., -1], {"total": total}


# an actor and critics of your own: test_custom_critics.py
MODELS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"fcnet_hiddens": [16]}) for name in ALGORITHMS),
    *((name, {"custom_model": f"{HERE}:Own"}) for name in ALGORITHMS if name not in CONTINUOUS),
    *(
        (name, {"custom_model": f"{HERE}:Remembering"})
        for name in ALGORITHMS
        if "custom_model" in config_class(name).possible_memories
    ),
]


def small(name: str, model: dict[str, Any] | None = None) -> AlgorithmConfig:
    config = config_class(name).from_dict(SMALL[name]).environment(env_of(name)).debugging(seed=7)
    config = config.reporting(min_sample_timesteps_per_iteration=128)
    config = config.rollouts(observation_filter="NoFilter" if name in OFFLINE else "MeanStdFilter")
    if name in OFFLINE:
        config.update_from_dict({"input_": recorded(env_of(name)), "min_train_timesteps_per_iteration": None})
    config = config.rollouts(num_envs_per_worker=2)
    config = config.evaluation(evaluation_interval=2, evaluation_duration=2)
    return config.training(model=model or {"fcnet_hiddens": [16]})


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    learned = result["info"]["learner"] | {"evaluation": result.get("evaluation")}
    return {key: result[key] for key in ("timesteps_total", "episodes_total", "episode_reward_mean")} | learned


@pytest.mark.parametrize(
    ("name", "model"), MODELS, ids=[f"{name}-{','.join(map(str, m.values()))}" for name, m in MODELS]
)
def test_resumed_is_uninterrupted_bit_for_bit(name: str, model: dict[str, Any], tmp_path: Path) -> None:
    with small(name, model).build() as one:
        first = one.get_policy().get_weights()
        for _ in range(3):
            one.train()
        learned = one.get_policy().get_weights()
        if "custom_model" in model:
            assert [key for key in first if (learned[key] == first[key]).all()] == [], "every parameter is trained"
        path = one.save(tmp_path / "checkpoint")
        uninterrupted = [comparable(one.train()) for _ in range(3)]
        with Algorithm.from_checkpoint(path) as two:
            assert type(two) is type(one)
            assert two.iteration == 3
            resumed = [comparable(two.train()) for _ in range(3)]
            assert resumed == uninterrupted
            for policy, weights in one.learners.weights().items():
                assert np.array_equal(weights, two.learners.weights()[policy])
            obs = np.array([0.01, -0.02, 0.03, -0.04], np.float32)[: one.get_policy().observation_layout.size]
            actions = [algorithm.compute_single_action(obs, explore=False) for algorithm in (one, two)]
            assert actions[0] == actions[1]


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in OFFLINE])
def test_filters_are_merged_in_each_iteration(name: str) -> None:
    with small(name).build() as algorithm:
        for _ in range(2):
            algorithm.train()
            seen = algorithm.workers.local_worker().filters["default_policy"].state()
            assert seen["delta"]["count"] == 0 < seen["stat"]["count"]


class Breaking(EightSteps):
    """The first environment of a worker raises in its 20th step, and so does each in its place."""

    answered: ClassVar[int] = 0  # steps that did not raise, of all environments of this process

    def __init__(self, env_config: Any) -> None:
        super().__init__(env_config)
        self.left = 10**9 if env_config.vector_index else 20

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("it broke")
        Breaking.answered += 1
        return super().step(action)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in OFFLINE])
def test_training_goes_on_where_an_environment_is_restarted(name: str) -> None:
    config = small(name).environment(Breaking, env_config={"real": name in CONTINUOUS})
    config.evaluation(evaluation_interval=None).reporting(min_sample_timesteps_per_iteration=80)
    with pytest.raises(EnvironmentError, match="it broke"), config.copy().build() as fragile:
        fragile.train()
    with config.fault_tolerance(restart_failed_sub_environments=True).build() as algorithm:
        before, started = algorithm.learners.weights()["default_policy"].copy(), Breaking.answered
        results = [algorithm.train() for _ in range(2)]
        weights = algorithm.learners.weights()["default_policy"]
        restarts = algorithm.workers.local_worker().env.env.restarts
    assert restarts >= 2
    sampled, answered = results[1]["timesteps_total"], Breaking.answered - started
    if config.batch_mode == "complete_episodes" or name == "ES":
        assert sampled < answered and sampled % 8 == 0, "an episode that a failure cut off is no whole one"
    else:
        assert sampled == answered
    assert np.isfinite(weights).all() and (weights != before).any()
    for result in results:
        assert {*result["hist_stats"]["episode_lengths"]} == {8}
        assert None not in result["info"]["learner"]["default_policy"]["learner_stats"].values(), "as NaN is reported"


def answers(name: str, variant: dict[str, Any], env: type[Echo]) -> list[Any]:
    """The greedy action for each observation, after one iteration, by default of 1600 steps."""
    given = {"gamma": 0.5, "min_sample_timesteps_per_iteration": 1600} | QUICK[name] | variant
    config = config_class(name).from_dict(given).environment(env).rollouts(num_envs_per_worker=4)
    if name in OFFLINE:  # the expert is right in nine of ten cases; what MARWIL reads is played at random
        config.update_from_dict({"input_": recorded(env, right=0.9 if name == "BC" else 0.0)})
    with config.training(model={"fcnet_hiddens": [16]}).debugging(seed=0).build() as algorithm:
        algorithm.train()
        return [algorithm.compute_single_action(shown, explore=False) for shown in range(3)]


@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=[f"{name}-{','.join(v)}" for name, v in VARIANTS])
def test_to_repeat_what_is_shown_is_learnt(name: str, variant: dict[str, Any]) -> None:
    if name in CONTINUOUS:
        actions = answers(name, variant, EchoAngle)
        np.testing.assert_allclose(np.concatenate(actions), [-2.0, 0.0, 2.0], atol=0.5)
    else:
        assert answers(name, variant, Echo) == [0, 1, 2]


@pytest.mark.parametrize("name", PRECISE)
def test_a_real_number_is_learnt_by_algorithms_for_all_actions_too(name: str) -> None:
    actions = answers(name, PRECISE[name], EchoAngle)
    np.testing.assert_allclose(np.concatenate(actions), [-2.0, 0.0, 2.0], atol=0.5)


def test_every_algorithm_that_takes_real_numbers_learns_one() -> None:
    assert PRECISE.keys() | CONTINUOUS == ALGORITHMS.keys() - {"APEX", "DQN", "SimpleQ"}


@pytest.mark.parametrize("name", PRECISE)
def test_an_index_and_a_real_number_are_learnt_together(name: str) -> None:
    indices, numbers = zip(*answers(name, PRECISE[name], EchoBoth), strict=True)
    assert indices == (0, 1, 2)
    np.testing.assert_allclose(np.concatenate(numbers), [-2.0, 0.0, 2.0], atol=0.5)


@pytest.mark.parametrize("variant", [{}, {"twin_q": False, "n_step": 2}, {"target_entropy": 0.1}])
def test_sac_learns_discrete_actions_too(variant: dict[str, Any]) -> None:
    assert answers("SAC", variant, Echo) == [0, 1, 2]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    runs = []
    for _ in range(2):
        with small(name).build() as algorithm:
            runs.append([comparable(algorithm.train()) for _ in range(2)])
    assert runs[0] == runs[1]
    with small(name).debugging(seed=8).build() as other:
        assert [comparable(other.train()) for _ in range(2)] != runs[0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_training_in_process_imports_nothing_that_is_slow_to_import(name: str) -> None:
    """Ray is not needed; sympy comes with doors of PyTorch that need not be gone through (half a second, 50 MB)."""
    given = {"input_": recorded(env_of(name)), "min_train_timesteps_per_iteration": None} if name in OFFLINE else {}
    program = (
        "import sys; from reef.algorithms.registry import config_class\n"
        f"config = config_class({name!r}).from_dict({SMALL[name] | given}).environment({env_of(name)!r})\n"
        "config.reporting(min_sample_timesteps_per_iteration=128)\n"
        "with config.build() as algorithm: algorithm.train()\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert set(ran.stdout.split()) & {"matplotlib", "pandas", "ray", "sympy", "tensorboard", "torchvision"} == set()
