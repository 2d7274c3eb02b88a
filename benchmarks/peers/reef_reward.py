"""Seconds and steps that Reef needs to reach a mean reward, from a job document; start-up is not timed."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peers.protocol import answer, arguments
from reef.api import load_job
from reef.job.settings import config_of


def train(args: dict[str, Any]) -> dict[str, Any]:
    """Train the document's job until the mean reward or the most steps are reached."""
    config = config_of(load_job(args["document"])).copy()
    with config.debugging(seed=args["seed"]).build() as algorithm:
        start, reward, steps = time.perf_counter(), None, 0
        while steps < args["max_steps"] and (reward is None or reward < args["reward"]):
            result = algorithm.train()
            reward, steps = result["episode_reward_mean"], result["timesteps_total"]
        seconds = time.perf_counter() - start
    reached = reward is not None and reward >= args["reward"]
    return {"steps": steps, "seconds": seconds, "reward": reward, "reached": reached}


if __name__ == "__main__":
    answer(train(arguments()), "reef", "torch")
