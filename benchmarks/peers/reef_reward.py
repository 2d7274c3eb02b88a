"""Seconds and steps that Reef needs to reach a mean reward, from a job document; start-up is not timed."""

from __future__ import annotations

import time

from benchmarks.peers.protocol import answer, arguments
from reef.algorithms.registry import config_class
from reef.api import load_job

if __name__ == "__main__":
    ARGS = arguments()
    SPEC = load_job(ARGS["document"]).spec
    CONFIG = config_class(SPEC.algorithm).from_dict(SPEC.config)
    CONFIG.environment(SPEC.environment.name, env_config=SPEC.environment.config).debugging(seed=ARGS["seed"])
    with CONFIG.build() as ALGORITHM:
        START, REWARD, STEPS = time.perf_counter(), None, 0
        while ARGS["max_steps"] > STEPS and (REWARD is None or ARGS["reward"] > REWARD):
            RESULT = ALGORITHM.train()
            REWARD, STEPS = RESULT["episode_reward_mean"], RESULT["timesteps_total"]
        SECONDS = time.perf_counter() - START
    REACHED = REWARD is not None and ARGS["reward"] <= REWARD
    answer({"steps": STEPS, "seconds": SECONDS, "reward": REWARD, "reached": REACHED}, "reef", "torch")
