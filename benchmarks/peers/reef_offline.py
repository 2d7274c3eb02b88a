"""Reef's BC and MARWIL: recorded rows learned from per second, by the learner alone on drawn batches or by training."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.protocol import answer, arguments, measure
from benchmarks.peers.recorded_cartpole import DRAWN, episodes
from reef.algorithms.bc import BCConfig
from reef.algorithms.marwil import MARWILConfig


def configuration(args: dict[str, Any], recorded: Path) -> Any:
    """Return the settings at which RLlib learns too; everything else is Reef's default."""
    config = {"bc": BCConfig, "marwil": MARWILConfig}[args["algorithm"]]().environment("CartPole-v1")
    config.training(
        lr=1e-4,
        train_batch_size=args["batch"],
        model={"fcnet_hiddens": args["hiddens"], "fcnet_activation": "tanh", "vf_share_layers": False},
    )
    config.reporting(min_train_timesteps_per_iteration=args["batch"] * args["updates"])
    config.debugging(seed=args["seed"])
    config.input_ = str(recorded)
    return config


def learning(algorithm: Any, args: dict[str, Any]) -> Callable[[], int]:
    """Return `updates` of the learner alone, on batches that were drawn before."""
    learner = algorithm.learners.learners[algorithm.policy_id]
    batches = [algorithm.recorded.sample(args["batch"]) for _ in range(DRAWN)]

    def iteration() -> int:
        for index in range(args["updates"]):
            learner.update(batches[index % DRAWN], timestep=0)
        return int(args["updates"] * args["batch"])

    return iteration


def training(algorithm: Any) -> Callable[[], int]:
    """Return whole training: a batch is drawn from the recorded episodes for each update."""

    def iteration() -> int:
        before = algorithm.counters["num_env_steps_trained"]
        algorithm.train()
        return int(algorithm.counters["num_env_steps_trained"] - before)

    return iteration


if __name__ == "__main__":
    ARGS = arguments()
    with tempfile.TemporaryDirectory() as FOLDER:
        FILE = Path(FOLDER) / "episodes.json"
        FILE.write_text("".join(f"{json.dumps({'steps': steps})}\n" for steps in episodes(ARGS["seed"])))
        with configuration(ARGS, FILE).build() as ALGORITHM:
            ITERATION = learning(ALGORITHM, ARGS) if ARGS["learner_alone"] else training(ALGORITHM)
            answer(measure(ITERATION, ARGS["measure_s"]), "reef", "torch")
