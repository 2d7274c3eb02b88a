"""Train every job document of this folder to its reward with three seeds; exit code 1 when one falls short.

A document's `spec.stop` holds the promise: the mean reward to reach and `timesteps_total` as the most steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.speed.machine import moment

FOLDER = Path(__file__).parent
REWARDS = ("episode_reward_mean", "evaluation/episode_reward_mean")
WINDOW = 100  # training episodes in a mean
QUICK_LABEL = "reef.dev/quick"


@dataclass(frozen=True)
class Promise:
    """What a document has to reach."""

    document: Path
    algorithm: str
    environment: str
    metric: str
    reward: float
    max_steps: int
    quick: bool

    @classmethod
    def of(cls, document: Path) -> Promise:
        """Read a job document."""
        job = yaml.safe_load(document.read_text())
        spec, labels = job["spec"], job["metadata"].get("labels", {})
        metric = next(key for key in REWARDS if key in spec["stop"])
        return cls(
            document=document,
            algorithm=spec["algorithm"],
            environment=spec["environment"]["name"],
            metric=metric,
            reward=float(spec["stop"][metric]),
            max_steps=int(spec["stop"]["timesteps_total"]),
            quick=labels.get(QUICK_LABEL) == "true",
        )


@dataclass(frozen=True)
class Outcome:
    """How one seed ended."""

    seed: int
    reward: float | None
    steps: int
    seconds: float
    met: bool
    error: str = ""


def train(promise: Promise, seed: int) -> Outcome:
    """Run `reef run` on the document and judge its last result."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--set", f"config.seed={seed}", "--storage-path", folder]
        command = [sys.executable, "-m", "reef", "run", str(promise.document), *options]
        run = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        files = list(Path(folder).rglob("result.json"))
        if run.returncode != 0 or not files:
            return Outcome(seed, None, 0, 0.0, met=False, error=(run.stdout + run.stderr)[-2000:])
        return judge(promise, seed, files[0])


def judge(promise: Promise, seed: int, results: Path) -> Outcome:
    """Compare the last line of result.json with the promise; a mean needs its full window of episodes."""
    last = json.loads(results.read_text().splitlines()[-1])
    group = last["evaluation"] if promise.metric.startswith("evaluation/") else last
    reward, steps = group["episode_reward_mean"], int(last["timesteps_total"])
    enough = group is not last or last["episodes_total"] >= WINDOW
    met = enough and reward is not None and reward >= promise.reward and steps <= promise.max_steps
    return Outcome(seed, reward, steps, float(last["time_total_s"]), met)


def table(results: dict[str, dict[str, Any]], promises: list[Promise]) -> Iterator[str]:
    """Yield RESULTS.md."""
    yield "# What the algorithms learn"
    yield ""
    yield "Written by `make learn`; do not edit. Every line is a job document of this folder, trained by `reef run`"
    yield "with three seeds. Reward: mean of the last 100 training episodes (of the last evaluation, where the document"
    yield "says so) when training stopped; steps and seconds: until then."
    yield ""
    headings = "document", "algorithm", "environment", "reward >=", "steps <=", "rewards", "steps", "seconds"
    yield f"| {' | '.join(headings)} | | measured | commit |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for promise in promises:
        measured = results.get(promise.document.name, {"outcomes": [], "date": "-", "commit": "-"})
        outcomes = [Outcome(**outcome) for outcome in measured["outcomes"]]
        rewards = " / ".join("failed" if o.reward is None else f"{o.reward:.0f}" for o in outcomes)
        steps = " / ".join(f"{o.steps:,}" for o in outcomes)
        seconds = " / ".join(f"{o.seconds:.0f}" for o in outcomes)
        verdict = "not run" if not outcomes else "met" if all(o.met for o in outcomes) else "**not met**"
        limits = f"{promise.reward:g} | {promise.max_steps:,}"
        cells = f"{promise.algorithm} | {promise.environment} | {limits} | {rewards} | {steps} | {seconds} | {verdict}"
        cells += f" | {measured['date']} | {measured['commit']}"
        yield f"| {promise.document.name} | {cells} |"
    yield ""


def main() -> int:
    """Train, write the table, say what fell short."""
    args = parser().parse_args()
    everything = [Promise.of(document) for document in sorted(args.folder.glob("*.yaml"))]
    chosen = [p for p in everything if (p.quick or not args.quick) and (not args.only or p.document.stem in args.only)]
    raw = args.folder / "results.json"
    results = json.loads(raw.read_text()) if raw.exists() else {}
    fell_short = not chosen
    with ThreadPoolExecutor(args.jobs) as pool:
        running = [(promise, [pool.submit(train, promise, seed) for seed in seeds(args)]) for promise in chosen]
        for promise, futures in running:
            outcomes = [future.result() for future in futures]
            results[promise.document.name] = moment() | {"outcomes": [asdict(outcome) for outcome in outcomes]}
            for outcome in outcomes:
                print(f"{promise.document.name}: {outcome}", flush=True)
                fell_short |= not outcome.met
            if not args.quick:
                raw.write_text(json.dumps(results, indent=1) + "\n")
                (args.folder / "RESULTS.md").write_text("\n".join(table(results, everything)))
    return int(fell_short)


def seeds(args: argparse.Namespace) -> list[int]:
    """Return the seeds to train with."""
    return [1] if args.quick else list(args.seeds)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn", description=__doc__)
    parser.add_argument("--only", type=lambda text: text.split(","), help="documents by name, without .yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--quick", action="store_true", help=f"one seed of what is labelled {QUICK_LABEL}, no table")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the documents are and the table goes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
