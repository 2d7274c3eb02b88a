"""How long the loss of rollout workers is felt: from SIGKILL until each that was killed has sampled again."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from benchmarks.peers.protocol import answer, arguments
from reef import PPOConfig

COUNT = 2


def main(args: dict[str, Any]) -> None:
    """Train, kill `killed` of two workers `times` times, each time once all are at work, and answer with the seconds.

    `first` is when somebody sampled again, `seconds` when all did.
    """
    config = (
        PPOConfig()
        .environment(args["env"])
        .rollouts(num_rollout_workers=COUNT, num_envs_per_worker=8, rollout_fragment_length=64)
        .fault_tolerance(recreate_failed_workers=True)
        .training(train_batch_size=1024)
        .debugging(seed=args["seed"])
    )
    with config.build() as algorithm:
        first_iteration_at = algorithm.train() and time.time()
        kills = []
        for _ in range(args["times"]):
            algorithm.train()
            pids = algorithm.workers.foreach_worker(lambda worker: os.getpid())[1:]
            began = time.perf_counter()
            for pid in pids[: args["killed"]]:
                os.kill(pid, signal.SIGKILL)
            kills.append(_again(algorithm.workers, list(range(1, args["killed"] + 1)), began))
    answer({"kills": kills, "first_iteration_at": first_iteration_at}, "ray", "torch", "gymnasium")


def _again(workers: Any, lost: list[int], began: float) -> dict[str, float]:
    after, missing = [], set(lost)
    while missing:
        missing -= {sample.worker_index for sample in workers.sample()}
        after.append(time.perf_counter() - began)
    return {"first": after[0], "seconds": after[-1]}


if __name__ == "__main__":
    main(arguments())
