"""The recorded episodes that documents of offline algorithms read, made when they are missing."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.learn.lines import TUNED
from reef.api import load_job
from reef.cli.main import main
from reef.config import AlgorithmConfig
from reef.job.settings import config_of

FOLDER = Path("~/.cache/reef/recorded")
SEED = 100  # of the training that is recorded: one that no line is judged by
DRAWN = ("--explore",)  # actions are drawn, as in training
RANDOM = (*DRAWN, "--config", '{"exploration_config": {"type": "Random"}}')


class Part(NamedTuple):
    """Episodes of the policy after `steps` environment steps."""

    steps: int
    episodes: int
    flags: tuple[str, ...] = ()  # of `reef evaluate`
    lowest: float = -math.inf  # reward that each of them must have


class Recording(NamedTuple):
    """What is trained, a document of examples/tuned, and which of its policies are recorded."""

    document: str
    parts: tuple[Part, ...]


RECORDINGS = {
    "cartpole-expert.json": Recording("cartpole-ppo.yaml", (Part(100_000, 50, lowest=500.0),)),
    # four of five steps are those of a policy that drops the pole after 44, always in the same way
    "cartpole-mixed.json": Recording("cartpole-ppo.yaml", (Part(1000, 1000), Part(100_000, 20, lowest=500.0))),
    "pendulum-mixed.json": Recording(
        "pendulum-sac.yaml", (Part(0, 20, RANDOM), *(Part(steps, 20, DRAWN) for steps in (1000, 2000, 3000)))
    ),
}


def make_missing(config: AlgorithmConfig) -> None:
    """Record what `config` reads, if that is one of the files above and it is not there."""
    for name, recording in RECORDINGS.items():
        path = (FOLDER / name).expanduser()
        if getattr(config, "input_", None) == str(FOLDER / name) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            record(recording, path)


def record(recording: Recording, path: Path) -> None:
    """Train, and write the episodes of each part to `path`.

    Raises:
        RuntimeError: an episode's reward is below the lowest that its part allows.
    """
    config = config_of(load_job(TUNED / recording.document)).copy().debugging(seed=SEED)
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder, config.build() as algorithm:
        for part in recording.parts:
            while algorithm.timestep < part.steps:
                algorithm.train()
            out = Path(folder, "part.json")
            checkpoint = algorithm.save(folder)
            main(["evaluate", checkpoint, "--episodes", str(part.episodes), "--out", str(out), "--json", *part.flags])
            found = out.read_text().splitlines()
            if (lowest := min(map(reward_of, found))) < part.lowest:
                raise RuntimeError(f"{path.name}: an episode after {part.steps} steps had a reward of {lowest}")
            lines += found
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines) + "\n")
    new.replace(path)


def reward_of(line: str) -> float:
    """Return the reward of a recorded episode."""
    reward: float = json.loads(line)["reward"]
    return reward


def mean_reward(path: str) -> float:
    """Return the mean reward of the episodes of a file."""
    rewards = [reward_of(line) for line in Path(path).expanduser().read_text().splitlines()]
    return round(sum(rewards) / len(rewards), 2)
