"""Stable-Baselines3's A2C: steps per second of whole training."""

from __future__ import annotations

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments, learning, measure

CALL_STEPS = 4000

if __name__ == "__main__":
    ARGS = arguments()
    MODEL = A2C(
        "MlpPolicy",
        make_vec_env(ARGS["env"], n_envs=ARGS["num_envs"], seed=ARGS["seed"]),
        n_steps=ARGS["steps"],
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.Tanh},
        device="cpu",
        seed=ARGS["seed"],
    )
    answer(measure(learning(MODEL, CALL_STEPS), ARGS["measure_s"]), "stable-baselines3", "torch", "gymnasium")
