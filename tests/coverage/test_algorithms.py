"""The defaults of the algorithms, as RLlib 1.12 to 2.10 has them."""

from __future__ import annotations

from typing import Any

import pytest

from reef.algorithms.registry import config_class

PER_WORKER_OU = {"type": "PerWorkerOrnsteinUhlenbeckNoise"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "PPO": {
        "lambda_": 1.0, "kl_coeff": 0.2, "kl_target": 0.01, "train_batch_size": 4000, "sgd_minibatch_size": 128,
        "num_sgd_iter": 30, "lr": 5e-5, "clip_param": 0.3, "vf_clip_param": 10.0, "vf_loss_coeff": 1.0,
        "entropy_coeff": 0.0, "use_gae": True, "use_critic": True,
    },
    "DQN": {
        "num_rollout_workers": 0, "double_q": True, "dueling": True, "num_atoms": 1, "v_min": -10.0, "v_max": 10.0,
        "noisy": False, "sigma0": 0.5, "n_step": 1, "hiddens": [256], "target_network_update_freq": 500,
        "replay_buffer_config.capacity": 50_000, "replay_buffer_config.prioritized_replay": True,
        "replay_buffer_config.prioritized_replay_alpha": 0.6, "replay_buffer_config.prioritized_replay_beta": 0.4,
        "replay_buffer_config.prioritized_replay_eps": 1e-6, "lr": 5e-4, "rollout_fragment_length": 4,
        "num_steps_sampled_before_learning_starts": 1000, "train_batch_size": 32, "training_intensity": None,
        "exploration_config": {
            "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000,
        },
    },
    "SAC": {
        "num_rollout_workers": 0, "twin_q": True, "tau": 5e-3, "initial_alpha": 1.0, "target_entropy": "auto",
        "lr": 3e-4, "actor_lr": None, "critic_lr": None, "alpha_lr": None, "train_batch_size": 256,
        "replay_buffer_config.capacity": 1_000_000, "num_steps_sampled_before_learning_starts": 1500,
    },
    "PG": {"lr": 4e-4, "use_critic": False},
    "A2C": {
        "rollout_fragment_length": 20, "num_rollout_workers": 0, "grad_clip": 40.0, "lr": 1e-4,
        "normalize_advantages": False,
    },
    "A3C": {"rollout_fragment_length": 10, "grad_clip": 40.0, "lr": 1e-4, "normalize_advantages": False},
    "IMPALA": {
        "rollout_fragment_length": 50, "train_batch_size": 500, "grad_clip": 40.0, "lr": 5e-4, "vf_loss_coeff": 0.5,
        "entropy_coeff": 0.01, "learner_queue_size": 16, "broadcast_interval": 1, "vtrace": True,
    },
    "APPO": {"clip_param": 0.4, "vtrace": True, "use_kl_loss": False},
    "APEX": {
        "n_step": 3, "num_rollout_workers": 32, "num_gpus": 1.0, "replay_buffer_config.capacity": 2_000_000,
        "num_replay_buffer_shards": 4, "train_batch_size": 512, "rollout_fragment_length": 50,
        "target_network_update_freq": 500_000, "exploration_config": {"type": "PerWorkerEpsilonGreedy"},
        "num_steps_sampled_before_learning_starts": 50_000, "max_weight_sync_delay": 400,
    },
    "APEX_DDPG": {"n_step": 3, "num_rollout_workers": 32, "exploration_config": PER_WORKER_OU},
    "DDPG": {
        "model.fcnet_hiddens": [400, 300], "tau": 2e-3, "train_batch_size": 256, "policy_delay": 1, "twin_q": False,
        "replay_buffer_config.prioritized_replay": True, "exploration_config": {"type": "OrnsteinUhlenbeckNoise"},
    },
    "TD3": {
        "policy_delay": 2, "twin_q": True, "tau": 5e-3, "train_batch_size": 100, "smooth_target_policy": True,
        "exploration_config.type": "GaussianNoise",
    },
    "ES": {
        "episodes_per_batch": 1000, "train_batch_size": 10_000, "noise_stdev": 0.02, "lr": 0.01, "l2_coeff": 0.005,
        "observation_filter": "MeanStdFilter", "eval_prob": 0.003,
    },
    "MARWIL": {"beta": 1.0, "train_batch_size": 2000, "lr": 1e-4, "vf_coeff": 1.0},
    "BC": {"beta": 0.0},
    "DDPPO": {"num_gpus_per_worker": 1.0, "num_envs_per_worker": 5, "kl_coeff": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_are_those_of_rllib(name: str) -> None:
    config = config_class(name)()
    assert {key: value_of(config, key) for key in DEFAULTS[name]} == DEFAULTS[name]


def value_of(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return config
