"""Stable-Baselines3's PPO: steps per second of whole training."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments, learning, measure


def settings(args: dict[str, Any]) -> dict[str, Any]:
    """Return what all peers share; everything else is the peer's default."""
    return {
        "env": make_vec_env(args["env"], n_envs=args["num_envs"], seed=args["seed"]),
        "learning_rate": 3e-4,
        "n_steps": args["batch"] // args["num_envs"],
        "batch_size": args["minibatch"],
        "n_epochs": args["epochs"],
        "device": "cpu",
        "seed": args["seed"],
    }


if __name__ == "__main__":
    ARGS = arguments()
    NETWORK = {"net_arch": [64, 64], "activation_fn": torch.nn.Tanh}
    MODEL = PPO("MlpPolicy", policy_kwargs=NETWORK, **settings(ARGS))
    answer(measure(learning(MODEL, ARGS["batch"]), ARGS["measure_s"]), "stable-baselines3", "torch", "gymnasium")
