"""Seconds and steps that Stable-Baselines3 needs to a mean reward on CartPole, with its tuned (rl-zoo) settings."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments


def linear(first: float) -> Callable[[float], float]:
    """Return a schedule from `first` down to 0 at the end of training."""
    return lambda remaining: remaining * first


class StopAtReward(BaseCallback):
    """Ends training once the mean reward of the last hundred episodes is reached."""

    def __init__(self, reward: float) -> None:
        super().__init__()
        self.wanted, self.reached = reward, False

    def mean(self) -> float:
        """Return the mean reward of the last hundred episodes."""
        episodes = self.model.ep_info_buffer
        return float(np.mean([episode["r"] for episode in episodes])) if episodes else 0.0

    def _on_step(self) -> bool:
        return not self.reached

    def _on_rollout_end(self) -> None:
        self.reached = self.mean() >= self.wanted


if __name__ == "__main__":
    ARGS = arguments()
    MODEL = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=ARGS["seed"]),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=linear(0.001),
        clip_range=linear(0.2),
        device="cpu",
        seed=ARGS["seed"],
    )
    STOP = StopAtReward(ARGS["reward"])
    START = time.perf_counter()
    MODEL.learn(100_000, callback=STOP)
    SECONDS = time.perf_counter() - START
    RESULT = {"steps": MODEL.num_timesteps, "seconds": SECONDS, "reward": STOP.mean(), "reached": STOP.reached}
    answer(RESULT, "stable-baselines3", "torch", "gymnasium")
