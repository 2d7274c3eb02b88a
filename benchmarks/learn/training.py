"""One run: train a job document with one seed and evaluate the policy along the way."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.learn.lines import FOLDER, Line
from benchmarks.learn.recorded import make_missing, mean_reward
from benchmarks.learn.rule import Evaluation
from reef.api import load_job
from reef.config import AlgorithmConfig
from reef.errors import CheckpointError
from reef.job.settings import config_of
from reef.rollout.local_workers import LocalWorkers
from reef.run.algorithm import Algorithm
from reef.run.evaluation import Evaluation as Evaluator
from reef.types import PolicyId

UNFINISHED = Path("~/.cache/reef/learn").expanduser()  # runs that take hours, and were stopped
STARTS = 100  # episodes of an evaluation, one of each environment
IMITATION = FOLDER / "cartpole-bc.yaml"  # with the settings of BC wherever another algorithm is compared with it
START_SEED = 0  # of the evaluations' environments, in all runs


def train(document: Path, seed: int) -> dict[str, Any]:
    """Train for all steps of the line; returns the rewards of all evaluations, of training, and of no learning."""
    line = Line.of(document)
    config = config_of(load_job(document)).copy().debugging(seed=seed)
    config.reporting(min_sample_timesteps_per_iteration=line.interval)
    make_missing(config)
    greedy, sampled = evaluation_settings(config), evaluation_settings(config, explore=True)
    random = evaluation_settings(config, explore=True, exploration_config={"type": "Random"})
    with config.build() as algorithm:
        kept = Kept.of(line, seed) if line.is_long else None
        record = (kept and kept.take_up(algorithm)) or {
            "random": evaluate(algorithm, random),
            "untrained": evaluate(algorithm, greedy),
            "evaluations": [],
        }
        result = trained(algorithm, line, greedy, record, kept)
        runners = algorithm.workers.local_worker().runners.values()
        draws = any(runner.exploration.follows_policy(line.steps) for runner in runners)
        return record | {
            "sampled": evaluate(algorithm, sampled) if draws else None,
            "training": lowest(result) if result["policy_reward_mean"] else None,  # nothing is played offline
            **({} if line.times_bc is None else imitation(config, seed)),
            **({} if line.fails_without is None else {"without": best_without(config, line, line.fails_without)}),
        }


def trained(
    algorithm: Algorithm, line: Line, greedy: AlgorithmConfig, record: dict[str, Any], kept: Kept | None = None
) -> dict[str, Any]:
    """Train for all steps of the line that are left, and add the evaluations to the record; returns the last result."""
    evaluations, result = record["evaluations"], {}
    seconds = evaluations[-1][1] if evaluations else 0.0
    while algorithm.timestep < line.steps:
        if kept is not None and evaluations:
            kept.write(algorithm, record)
        started = time.perf_counter()
        result = algorithm.train()
        seconds += time.perf_counter() - started
        evaluations.append(Evaluation(algorithm.timestep, round(seconds, 2), evaluate(algorithm, greedy)))
    return result


class Kept:
    """The newest checkpoint of a run that takes hours, and its record: what was stopped goes on there."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of this run alone."""
        self._folder, self._file = folder, folder / "record.json"

    @classmethod
    def of(cls, line: Line, seed: int) -> Kept:
        """That of a seed of the line as it is now; what other versions of the line left is deleted."""
        own = UNFINISHED / f"{line.document.stem}-{seed}-{line.fingerprint}"
        for other in UNFINISHED.glob(f"{line.document.stem}-{seed}-*"):
            if other != own:
                shutil.rmtree(other)
        return cls(own)

    def take_up(self, algorithm: Algorithm) -> dict[str, Any] | None:
        """Restore the algorithm and return the record; None if nothing was kept."""
        if not self._file.exists():
            return None
        found = json.loads(self._file.read_text())
        try:
            algorithm.restore(self._folder / found["checkpoint"])
        except CheckpointError as error:
            raise CheckpointError(f"{error} To begin anew, delete {self._folder}.") from error
        record: dict[str, Any] = found["record"]
        return record

    def write(self, algorithm: Algorithm, record: dict[str, Any]) -> None:
        """Replace what is kept."""
        checkpoint = f"checkpoint_{algorithm.timestep}"
        algorithm.save(self._folder / checkpoint)
        new = self._folder / "new.json"
        new.write_text(json.dumps({"checkpoint": checkpoint, "record": record}))
        new.replace(self._file)
        for older in self._folder.glob("checkpoint_*"):
            if older.name != checkpoint:
                shutil.rmtree(older)

    def remove(self) -> None:
        """Keep nothing: the results have it."""
        shutil.rmtree(self._folder, ignore_errors=True)


def best_without(config: AlgorithmConfig, line: Line, setting: str) -> float:
    """Return the highest evaluation of the same document with a setting of its model off."""
    own = config.copy().training(model={setting: False})
    record: dict[str, Any] = {"evaluations": []}
    with own.build() as algorithm:
        trained(algorithm, line, evaluation_settings(own), record)
    return max(each.reward for each in record["evaluations"])


def imitation(config: AlgorithmConfig, seed: int) -> dict[str, float]:
    """Return the rewards of BC on what `config` reads, and of the recorded episodes."""
    read = {"env": config.env, "input_": config.input_, "seed": seed}
    own = config_of(load_job(IMITATION)).copy().update_from_dict(read)
    with own.build() as algorithm:
        while algorithm.timestep < Line.of(IMITATION).steps:
            algorithm.train()
        return {"bc": evaluate(algorithm, evaluation_settings(own)), "recorded": mean_reward(config.input_)}


def evaluation_settings(config: AlgorithmConfig, explore: bool = False, **changed: Any) -> AlgorithmConfig:
    """Return the settings to evaluate one episode from each of the start seeds, added to the document's own."""
    changed |= {"explore": explore, "num_envs_per_worker": STARTS, "seed": START_SEED}
    changed = config.evaluation_config | changed
    settings = config.copy().evaluation(evaluation_config=changed, evaluation_duration=STARTS)
    return settings.evaluation(evaluation_sample_timeout_s=3600.0, evaluation_num_workers=0).freeze()


def evaluate(algorithm: Algorithm, settings: AlgorithmConfig) -> float:
    """Return the mean reward of the policy as it is now, with the observation filter of training.

    The environments are made each time: so their first episodes are always the same.
    """
    evaluation = Evaluator(settings, lambda own, count: LocalWorkers(own))
    try:
        result = evaluation.run(algorithm)
    finally:
        evaluation.stop()
    return round(lowest(result), 2)


def lowest(result: dict[str, Any]) -> float:
    """Return the mean reward of an agent of the policy that has the lowest: each policy has to learn."""
    rewards: dict[PolicyId, float] = result["policy_reward_mean"]
    return min(rewards.values())
