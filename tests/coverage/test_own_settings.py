"""Every setting that only some algorithms have changes what is trained."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef.algorithms.registry import config_class

REPLAY = {
    "train_batch_size": 16,
    "num_steps_sampled_before_learning_starts": 32,
    "min_sample_timesteps_per_iteration": 96,
}
CRITICS = REPLAY | {"lr": 0.01}
BASES: dict[str, dict[str, Any]] = {
    "A3C": {"rollout_fragment_length": 8, "min_sample_timesteps_per_iteration": 64},
    "APEX": REPLAY | {"num_rollout_workers": 0, "num_gpus": 0, "rollout_fragment_length": 8, "hiddens": [4]}
    | {"max_weight_sync_delay": 50, "num_replay_buffer_shards": 2, "target_network_update_freq": 30},
    "APPO": {"rollout_fragment_length": 8, "train_batch_size": 16, "min_sample_timesteps_per_iteration": 96},
    "CQL": {"train_batch_size": 16, "min_train_timesteps_per_iteration": 64, "bc_iters": 0, "num_actions": 2},
    "DDPG": CRITICS, "TD3": CRITICS, "SAC": CRITICS, "TQC": CRITICS,
    "DQN": REPLAY | {"hiddens": [4], "target_network_update_freq": 20},
    "ES": {"train_batch_size": 1, "episodes_per_batch": 4, "noise_size": 10_000},
    "IMPALA": {"rollout_fragment_length": 8, "train_batch_size": 16, "min_sample_timesteps_per_iteration": 96},
    "IQL": {"train_batch_size": 16, "min_train_timesteps_per_iteration": 64, "lr": 0.01},
    "MARWIL": {"train_batch_size": 16, "min_train_timesteps_per_iteration": 64},
    "PPO": {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2},
}  # fmt: skip
OLD = {"broadcast_interval": 3, "max_requests_in_flight_per_sampler_worker": 3}  # weights that sample are older
PRIORITIZED = {"replay_buffer_config.prioritized_replay": True}
ATOMS = {"num_atoms": 5, "v_min": -5.0, "v_max": 5.0}
SMOOTH = {"smooth_target_policy": True}
KL = {"use_kl_loss": True, "target_update_frequency": 3}
MEMORY = {"model.use_lstm": True, "model.lstm_cell_size": 4, "model.max_seq_len": 4}
CHANGES: list[tuple[str, dict[str, Any], str, Any]] = [
    ("PPO", {}, "lambda_", 0.5),
    ("PPO", {"lambda_": 0.5}, "use_gae", False),
    ("PPO", {"batch_mode": "complete_episodes"}, "use_critic", False),
    ("PPO", {}, "vf_loss_coeff", 0.1),
    ("PPO", {}, "entropy_coeff", 0.5),
    ("PPO", {}, "normalize_advantages", False),
    ("PPO", {}, "sgd_minibatch_size", 16),
    ("PPO", {}, "num_sgd_iter", 3),
    ("PPO", {}, "shuffle_sequences", False),
    ("PPO", {}, "clip_param", 1e-4),
    ("PPO", {}, "kl_coeff", 100.0),
    ("PPO", {}, "kl_target", 1e-9),
    ("PPO", {}, "vf_clip_param", 1e-3),
    ("IMPALA", OLD, "vtrace", False),
    ("IMPALA", OLD, "vtrace_clip_rho_threshold", 0.5),
    ("IMPALA", OLD, "vtrace_clip_pg_rho_threshold", 0.5),
    ("IMPALA", {}, "broadcast_interval", 4),
    ("IMPALA", {}, "num_sgd_iter", 2),
    ("IMPALA", {"num_sgd_iter": 2}, "minibatch_buffer_size", 2),
    ("IMPALA", {"replay_buffer_num_slots": 4}, "replay_proportion", 1.0),
    ("IMPALA", {"replay_proportion": 1.0, "replay_buffer_num_slots": 1}, "replay_buffer_num_slots", 4),
    ("IMPALA", {"max_requests_in_flight_per_sampler_worker": 3}, "max_staleness", 0),
    ("APPO", {"num_sgd_iter": 3}, "clip_param", 1e-6),
    ("APPO", {}, "num_sgd_iter", 2),
    ("APPO", {}, "target_update_frequency", 3),
    ("APPO", {}, "tau", 0.1),
    ("APPO", {"target_update_frequency": 3}, "use_kl_loss", True),
    ("APPO", KL, "kl_coeff", 100.0),
    ("APPO", KL, "kl_target", 1e-9),
    ("DQN", {"target_network_update_freq": 1000, "lr": 0.05}, "double_q", False),
    ("DQN", {}, "dueling", False),
    ("DQN", {}, "hiddens", [3]),
    ("DQN", {}, "num_atoms", 3),
    ("DQN", ATOMS, "v_min", -1.0),
    ("DQN", ATOMS, "v_max", 1.0),
    ("DQN", {}, "noisy", True),
    ("DQN", {"noisy": True}, "sigma0", 2.0),
    ("DQN", {}, "target_network_update_freq", 1000),
    ("DQN", {}, "tau", 0.1),
    ("DQN", {}, "n_step", 3),
    ("DQN", {}, "training_intensity", 16.0),
    ("DQN", {}, "num_steps_sampled_before_learning_starts", 48),
    ("DQN", {}, "replay_buffer_config.capacity", 20),
    ("DQN", {}, "replay_buffer_config.prioritized_replay", False),
    ("DQN", PRIORITIZED, "replay_buffer_config.prioritized_replay_alpha", 0.1),
    ("DQN", PRIORITIZED, "replay_buffer_config.prioritized_replay_beta", 1.0),
    ("DQN", PRIORITIZED, "replay_buffer_config.prioritized_replay_eps", 10.0),
    ("DQN", MEMORY, "replay_buffer_config.replay_burn_in", 2),
    ("DQN", MEMORY, "replay_buffer_config.zero_init_states", True),
    ("SAC", {}, "twin_q", False),
    ("SAC", {}, "actor_lr", 0.1),
    ("SAC", {}, "critic_lr", 0.1),
    ("SAC", {}, "alpha_lr", 0.1),
    ("SAC", {}, "initial_alpha", 0.1),
    ("SAC", {}, "target_entropy", 3.0),
    *(("SAC", {}, f"{part}_model_config.fcnet_hiddens", [3]) for part in ("policy", "q")),
    *(("SAC", {}, f"{part}_model_config.fcnet_activation", "tanh") for part in ("policy", "q")),
    *(("SAC", {}, f"{part}_model_config.post_fcnet_hiddens", [3]) for part in ("policy", "q")),
    ("TD3", {}, "policy_delay", 3),
    ("TD3", {}, "smooth_target_policy", False),
    ("TD3", SMOOTH, "target_noise", 0.01),
    ("TD3", SMOOTH, "target_noise_clip", 0.01),
    ("TQC", {}, "n_quantiles", 5),
    ("TQC", {}, "n_critics", 3),
    ("TQC", {}, "top_quantiles_to_drop_per_net", 5),
    ("DDPG", {}, "use_huber", True),
    ("DDPG", {"use_huber": True}, "huber_threshold", 0.01),
    ("DDPG", {}, "l2_reg", 0.5),
    ("CQL", {}, "min_q_weight", 1.0),
    ("CQL", {}, "temperature", 5.0),
    ("CQL", {}, "num_actions", 3),
    ("CQL", {}, "bc_iters", 2),
    ("CQL", {}, "actions_in_input_normalized", True),
    ("IQL", {}, "expectile", 0.9),
    ("IQL", {}, "beta", 0.5),
    ("IQL", {}, "value_lr", 0.1),
    ("MARWIL", {}, "beta", 3.0),
    ("MARWIL", {}, "vf_coeff", 0.1),
    ("MARWIL", {}, "moving_average_sqd_adv_norm_start", 1.0),
    ("MARWIL", {}, "moving_average_sqd_adv_norm_update_rate", 0.5),
    ("ES", {}, "episodes_per_batch", 8),
    ("ES", {}, "noise_stdev", 0.5),
    ("ES", {}, "noise_size", 20_000),
    ("ES", {}, "l2_coeff", 0.5),
    ("ES", {}, "eval_prob", 0.9),
    ("APEX", {}, "num_replay_buffer_shards", 3),
    ("APEX", {}, "worker_side_prioritization", False),
    ("APEX", {}, "max_weight_sync_delay", 9),
]
IDS = [f"{name}-{key}" for name, _, key, _ in CHANGES]


class Wander(gym.Env[Any, Any]):
    """Noise with a reward for the action; the action space is an index, or a number where `env_config` says so."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, env_config: Any) -> None:
        self.action_space = gym.spaces.Box(-2.0, 2.0, (1,)) if env_config.get("numbers") else gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def look(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.look(), float(np.sum(action)) + self.steps, self.steps == 7, False, {}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Episodes of numbers as actions."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("recorded") / "episodes.json"
    with path.open("w") as stream:
        for _ in range(12):
            obs = random.uniform(-1, 1, (6, 2)).tolist()
            steps = [
                {
                    "obs": obs[t],
                    "next_obs": obs[t + 1],
                    "action": [random.uniform(-1, 1)],
                    "reward": t * random.random(),
                }
                | {"reward": t * random.random(), "terminated": t == 4, "truncated": False}
                for t in range(5)
            ]
            stream.write(json.dumps({"steps": steps}) + "\n")
    return str(path)


@cache
def trained(name: str, settings: str, recorded: str) -> dict[str, Any]:
    """Weights by name, and what the learner reports, after two iterations."""
    config = config_class(name)().environment(Wander, env_config={"numbers": name not in ("DQN", "APEX", "PPO")})
    config = config.debugging(seed=1).training(model={"fcnet_hiddens": [4]})
    if name in ("MARWIL", "CQL", "IQL"):
        config.offline_data(input_=recorded)
    for key, value in {**BASES[name], **json.loads(settings)}.items():
        config.set_path(key, value)
    with config.build() as algorithm:
        results = [algorithm.train() for _ in range(2)]
        weights = algorithm.get_policy().get_weights()
    return weights | {"timesteps": np.array([result["timesteps_total"] for result in results])}


@pytest.mark.parametrize(
    ("name", "base", "key", "value"), CHANGES, ids=[f"{name}-{key}" for name, _, key, _ in CHANGES]
)
def test_a_setting_of_some_algorithms_changes_what_is_trained(
    name: str, base: dict[str, Any], key: str, value: Any, recorded: str
) -> None:
    one, other = (trained(name, json.dumps(settings), recorded) for settings in (base, base | {key: value}))
    shapes = [{name: array.shape for name, array in each.items()} for each in (one, other)]
    assert shapes[0] != shapes[1] or any((one[name] != other[name]).any() for name in one)
