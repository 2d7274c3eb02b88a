"""Sample Factory's APPO: steps that were trained on per second, in one process or with worker processes."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import gymnasium
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

from benchmarks.peers.protocol import answer, arguments

WARMUP = 10  # training iterations, of one batch each


def make(name: str, *_: Any, **__: Any) -> gymnasium.Env:
    """Return an environment; Sample Factory needs a Gymnasium before 1.0, whose LunarLander is the version before."""
    return gymnasium.make(name.replace("LunarLander-v3", "LunarLander-v2"))


def flags(args: dict[str, Any], folder: str) -> list[str]:
    """Return the settings at which Reef trains too; everything else is Sample Factory's default.

    What Reef's network and loss do not have is switched off. A worker makes one batch with each rollout.
    """
    workers = args["workers"]
    settings = {
        "algo": "APPO",
        "env": args["env"],
        "experiment": "speed",
        "train_dir": folder,
        "device": "cpu",
        "seed": args["seed"],
        "use_rnn": False,
        "recurrence": 1,
        "nonlinearity": "tanh",
        "normalize_input": False,
        "normalize_returns": False,
        "batch_size": args["batch"],
        "rollout": args["fragment"],
        "num_epochs": 1,
        "num_batches_per_epoch": 1,
        "async_rl": workers > 0,
        "serial_mode": workers == 0,
        "num_workers": max(workers, 1),
        "num_envs_per_worker": args["num_envs"],
        "worker_num_splits": 2 if workers else 1,
        "save_every_sec": 3600,
    }
    hiddens = ["--encoder_mlp_layers", *map(str, args["hiddens"])]
    return [*(f"--{name}={value}" for name, value in settings.items()), *hiddens]


class Stopwatch(AlgoObserver):
    """Counts the batches that were trained on in `seconds` after the warm-up, and ends the training."""

    def __init__(self, seconds: float, batch: int) -> None:
        self.seconds, self.batch = seconds, batch
        self.iterations, self.start = 0, 0.0
        self.result: dict[str, Any] = {}

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Take the time of a training iteration's end."""
        self.iterations += 1
        if self.iterations == 1:
            self.result["first_iteration_at"] = time.time()
        if self.iterations == WARMUP:
            self.start = time.perf_counter()
        if self.iterations <= WARMUP or "steps" in self.result:
            return
        elapsed = time.perf_counter() - self.start
        if elapsed >= self.seconds:
            self.result |= {"steps": (self.iterations - WARMUP) * self.batch, "seconds": elapsed}
            # The limit of seconds never ends a training: Sample Factory 2.1.1 does not count them.
            runner.cfg.train_for_env_steps = 0


if __name__ == "__main__":
    ARGS = arguments()
    register_env(ARGS["env"], make)
    with tempfile.TemporaryDirectory() as FOLDER:
        FLAGS = flags(ARGS, FOLDER)
        PARSER, _ = parse_sf_args(FLAGS)
        _, RUNNER = make_runner(parse_full_cfg(PARSER, FLAGS))
        STOPWATCH = Stopwatch(ARGS["measure_s"], ARGS["batch"])
        RUNNER.register_observer(STOPWATCH)
        RUNNER.init()
        RUNNER.run()
    answer(STOPWATCH.result, "sample-factory", "torch", "gymnasium")
