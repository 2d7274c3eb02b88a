"""Stable-Baselines3's PPO: steps per second of whole training."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments, measure


def make(args: dict[str, Any]) -> PPO:
    """Build PPO at the settings that all peers share; everything else is the peer's default."""
    return PPO(
        "MlpPolicy",
        make_vec_env(args["env"], n_envs=args["num_envs"], seed=args["seed"]),
        learning_rate=3e-4,
        n_steps=args["batch"] // args["num_envs"],
        batch_size=args["minibatch"],
        n_epochs=args["epochs"],
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.Tanh},
        device="cpu",
        seed=args["seed"],
    )


if __name__ == "__main__":
    ARGS = arguments()
    MODEL = make(ARGS)

    def iteration() -> int:
        """Collect one batch and train on it."""
        before = MODEL.num_timesteps
        MODEL.learn(ARGS["batch"], reset_num_timesteps=False)
        return MODEL.num_timesteps - before

    answer(measure(iteration, ARGS["measure_s"]), "stable-baselines3", "torch", "gymnasium")
