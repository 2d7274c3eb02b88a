"""What callbacks cost: trainings with the same seed take turns in one process; their CPU time is compared in pairs."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.peers.protocol import answer, arguments, measure
from benchmarks.peers.reef import configuration, training
from reef.callbacks import DefaultCallbacks


class OneHook(DefaultCallbacks):
    """Does nothing, once in each iteration."""

    def on_train_result(self, *, result: dict[str, Any], **_: Any) -> None:
        """As every hook that only looks."""


FORMS = {"none": None, "empty class": DefaultCallbacks, "one hook": OneHook}

if __name__ == "__main__":
    ARGS = arguments()
    ALGORITHMS = {name: configuration(ARGS).callbacks(given).build() for name, given in FORMS.items()}
    ITERATIONS = {name: training(algorithm) for name, algorithm in ALGORITHMS.items()}
    SPENT: dict[str, list[float]] = {name: [] for name in FORMS}  # seconds of CPU time by round

    def one_round() -> int:
        """Train one iteration of each, in an order that turns around; return the environment steps."""
        names, steps = list(FORMS), 0
        for name in names if len(SPENT["none"]) % 2 else reversed(names):
            before = time.process_time()
            steps += ITERATIONS[name]()
            SPENT[name].append(time.process_time() - before)
        return steps

    WARMUP = 3
    found = measure(one_round, ARGS["measure_s"], WARMUP)
    pairs = {name: zip(SPENT["none"], spent, strict=True) for name, spent in SPENT.items() if name != "none"}
    ratios = {name: median(plain / own for plain, own in list(each)[WARMUP:]) for name, each in pairs.items()}
    for algorithm in ALGORITHMS.values():
        algorithm.stop()
    answer({**found, "ratios": ratios, "rounds": len(SPENT["none"]) - WARMUP}, "reef", "torch", "gymnasium")
