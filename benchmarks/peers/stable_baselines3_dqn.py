"""Stable-Baselines3's DQN: steps per second once learning has started."""

from __future__ import annotations

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments, learning, measure

if __name__ == "__main__":
    ARGS = arguments()
    MODEL = DQN(
        "MlpPolicy",
        make_vec_env(ARGS["env"], n_envs=ARGS["num_envs"], seed=ARGS["seed"]),
        learning_rate=5e-4,
        buffer_size=ARGS["buffer"],
        learning_starts=ARGS["learning_starts"],
        batch_size=ARGS["batch"],
        train_freq=(1, "step"),  # one step of every environment
        gradient_steps=ARGS["num_envs"] // ARGS["steps_per_update"],
        target_update_interval=500,
        policy_kwargs={"net_arch": ARGS["hiddens"], "activation_fn": torch.nn.ReLU},
        device="cpu",
        seed=ARGS["seed"],
    )
    answer(measure(learning(MODEL, 1000), ARGS["measure_s"], warmup=3), "stable-baselines3", "torch", "gymnasium")
