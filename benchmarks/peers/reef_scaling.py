"""IMPALA with workers whose environments sleep, and what the driver's thread spends on each of its works.

So many workers fit on few processors. Seconds are those that the thread computed, not those that it waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from benchmarks.peers.protocol import answer, arguments, measure
from reef.algorithms.impala import IMPALAConfig

FRAGMENT, BATCH = 50, 500


class Sleeping(gym.Wrapper[Any, Any, Any, Any]):
    """A CartPole whose steps take longer."""

    def __init__(self, config: dict[str, float]) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.step_s = config["step_s"]

    def step(self, action: Any) -> Any:
        time.sleep(self.step_s)
        return self.env.step(action)


class Costs:
    """Seconds and calls of functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}

    def count(self, owner: Any, method: str, name: str) -> None:
        """Have the calls of `owner.method` counted as `name`."""
        called: Callable[..., Any] = getattr(owner, method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            result = called(*args, **kwargs)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - start
            self.calls[name] = self.calls.get(name, 0) + 1
            return result

        setattr(owner, method, counted)


if __name__ == "__main__":
    ARGS = arguments()
    CONFIG = IMPALAConfig().environment(f"{__spec__.name}:Sleeping", env_config={"step_s": ARGS["step_s"]})
    CONFIG.training(train_batch_size=BATCH, model={"fcnet_hiddens": [64, 64]}).debugging(seed=ARGS["seed"])
    CONFIG.rollouts(num_rollout_workers=ARGS["workers"], rollout_fragment_length=FRAGMENT, num_envs_per_worker=1)
    CONFIG.resources(num_cpus_per_worker=0.01).reporting(min_sample_timesteps_per_iteration=BATCH)
    with CONFIG.build() as ALGORITHM:
        COSTS = Costs()
        COSTS.count(ALGORITHM.workers, "request", "fragment: request")
        COSTS.count(ALGORITHM.workers, "ready", "fragment: receive")
        COSTS.count(ALGORITHM, "count_sampled", "fragment: count")
        COSTS.count(ALGORITHM.learners, "submit", "update")
        COSTS.count(ALGORITHM, "publish_weights", "version")
        RECIPIENTS = ALGORITHM.recipients.of_publication

        def recipients(*args: Any) -> list[int]:
            """Count to how many workers weights go."""
            to = RECIPIENTS(*args)
            COSTS.calls["post"] = COSTS.calls.get("post", 0) + len(to)
            return to

        ALGORITHM.recipients.of_publication = recipients  # type: ignore[method-assign]

        def iteration() -> int:
            """Train once; returns the steps that were learned from."""
            before = ALGORITHM.counters["num_env_steps_trained"]
            RESULTS.append(ALGORITHM.train())
            return int(ALGORITHM.counters["num_env_steps_trained"] - before)

        RESULTS: list[dict[str, Any]] = []
        for _ in range(2 * ARGS["workers"]):  # until every worker samples, and its first fragments are gone
            iteration()
        COSTS.seconds.clear()
        COSTS.calls.clear()
        before = time.thread_time()
        measured = measure(iteration, ARGS["measure_s"])
        busy = time.thread_time() - before
        learner = [result["info"]["learner"]["default_policy"]["learner_stats"] for result in RESULTS]
        extra = {
            "busy_s": busy,
            "cost_s": COSTS.seconds,
            "calls": COSTS.calls,
            "staleness": learner[-1]["staleness"],
            "dropped": RESULTS[-1]["counters"]["num_batches_dropped"],
        }
        answer(measured | extra, "reef", "ray", "torch", "gymnasium")
