"""The recorded episodes that documents of offline algorithms read, made when they are missing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.learn.lines import TUNED
from reef.api import load_job
from reef.cli.main import main
from reef.config import AlgorithmConfig
from reef.job.settings import config_of

FOLDER = Path("~/.cache/reef/recorded")
EXPERT = FOLDER / "cartpole-expert.json"
EPISODES, BEST = 50, 500.0
SEED, ITERATIONS = 100, 100  # of the expert's training: a seed that no line is judged by


def make_missing(config: AlgorithmConfig) -> None:
    """Record what `config` reads, if that is one of the files above and it is not there."""
    path = EXPERT.expanduser()
    if getattr(config, "input_", None) == str(EXPERT) and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        record_expert(path)


def record_expert(path: Path) -> None:
    """Train PPO until all of 50 greedy episodes of CartPole end with 500, and write those.

    Raises:
        RuntimeError: it did not come to that.
    """
    config = config_of(load_job(TUNED / "cartpole-ppo.yaml")).copy().debugging(seed=SEED)
    new = path.with_suffix(".new")
    with tempfile.TemporaryDirectory() as folder, config.build() as algorithm:
        for _ in range(ITERATIONS):
            algorithm.train()
        checkpoint = algorithm.save(folder)
        main(["evaluate", checkpoint, "--episodes", str(EPISODES), "--out", str(new), "--json"])
    rewards = [json.loads(line)["reward"] for line in new.read_text().splitlines()]
    if len(rewards) < EPISODES or min(rewards) < BEST:
        raise RuntimeError(f"the expert's episodes had rewards of {min(rewards)} to {max(rewards)}, expected {BEST}")
    new.replace(path)
