"""The state of a sweep's trials: `trials.json` in its folder, from which a sweep that was cut off goes on."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from reef.api.keys import GROWING_FIELDS
from reef.api.status import TrialsStatus, TrialStatus
from reef.errors import StorageError
from reef.run.checkpoint import CheckpointStore
from reef.run.checkpoint.content import first_problem
from reef.run.metrics import Result
from reef.run.reporters.files import read_results, replace_text, storage_errors
from reef.run.stopping import lookup
from reef.sweep.plan import State, Trial

FILE, FORMAT, VERSION = "trials.json", "reef-sweep", 1
SUMMED = (*sorted(GROWING_FIELDS), "num_worker_restarts")  # over the trials; the rest is the best trial's
SUMMED_NOW = (  # over the trials that run
    "num_env_steps_sampled_throughput_per_sec",
    "num_healthy_workers",
    "num_lost_workers",
    "num_waiting_workers",
)


@dataclass(slots=True)
class Document:
    """What the file holds of a sweep, beside its metric and mode."""

    format: Literal["reef-sweep"]
    version: Literal[1]
    trials: list[Trial]


class Record:
    """The trials of a sweep, by name, and the newest result of each."""

    uri: str | None = None  # of the folder in an object store, if all is kept there too

    def __init__(self, folder: Path, metric: str, mode: str, trials: Iterable[Trial]) -> None:
        self.folder, self.metric, self.mode = folder, metric, mode
        self.trials = {trial.name: trial for trial in trials}
        self.lost: set[str] = set()  # names of those that failed by faults alone: another life may do better
        self._results: dict[str, Result] = {}

    @classmethod
    def read(cls, folder: Path, metric: str, mode: str) -> Record | None:
        """What an earlier life left in `folder`, with trials that ran then waiting again; None where it left nothing.

        Raises StorageError when the file is damaged.
        """
        file = folder / FILE
        if not file.exists():
            return None
        try:
            trials = TypeAdapter(Document).validate_json(file.read_bytes(), strict=True).trials
            if len({trial.name for trial in trials}) != len(trials):
                raise ValueError("two trials have the same name")
        except (OSError, ValueError) as error:
            problem = first_problem(error, "the file") if isinstance(error, ValidationError) else error
            raise StorageError(
                f"{file} cannot be read: {problem}. Move its folder away to begin the sweep again."
            ) from error
        record = cls(folder, metric, mode, trials)
        for trial in trials:
            if trial.state in ("running", "waiting"):  # its results and checkpoints say how far it can go on from
                trial.state, trial.iteration, trial.timesteps = "waiting", 0, 0
                trial.metric = trial.checkpoint = None
            for result in read_results(folder / trial.name):
                record.take(trial.name, {**result, "num_worker_restarts": 0})  # each life counts its own
        return record

    def write(self) -> None:
        """Replace the file; a kill leaves the old one or the new one."""
        head = {"format": FORMAT, "version": VERSION, "metric": self.metric, "mode": self.mode}
        rows = [asdict(trial) for trial in self.trials.values()]
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_text(self.folder / FILE, [json.dumps({**head, "trials": rows}, indent=2) + "\n"])

    def take(self, name: str, result: Result) -> None:
        """Take in the newest result of a trial."""
        trial = self.trials[name]
        self._results[name] = result
        trial.iteration, trial.timesteps = result["training_iteration"], result.get("timesteps_total") or 0
        trial.metric = finite(lookup(result, self.metric))
        self._find_checkpoint(trial)

    def newest(self, name: str) -> Result:
        """The newest result of a trial; empty while there is none."""
        return self._results.get(name, {})

    def _find_checkpoint(self, trial: Trial) -> None:
        paths = CheckpointStore(self.folder / trial.name).paths()
        trial.checkpoint = str(paths[-1]) if paths else None

    def change(self, name: str, state: State, reason: str = "") -> Trial:
        """Note that a trial has begun or ended."""
        trial = self.trials[name]
        trial.state, trial.reason = state, reason
        self._find_checkpoint(trial)
        return trial

    def place_of(self, trial: Trial) -> str | None:
        """Where the newest checkpoint of a trial is kept, or, in an object store, will be."""
        if self.uri is None or trial.checkpoint is None:
            return trial.checkpoint
        return f"{self.uri}/{trial.name}/{Path(trial.checkpoint).name}"

    def kept(self, trial: Trial) -> str | None:
        """Where it is for sure: in an object store once the trial is through."""
        return self.place_of(trial) if self.uri is None or trial.state == "finished" else None

    def in_state(self, *states: State) -> list[Trial]:
        """The trials in one of these states."""
        return [trial for trial in self.trials.values() if trial.state in states]

    @property
    def best(self) -> Trial | None:
        """The trial whose newest result is best, of those that have one and did not fail; the first of equal ones."""
        sign = 1 if self.mode == "max" else -1
        known = [trial for trial in self.trials.values() if trial.metric is not None and trial.state != "failed"]
        return max(known, key=lambda trial: sign * (trial.metric or 0.0), default=None)

    def status(self) -> tuple[TrialStatus | None, TrialsStatus]:
        """The best trial and the counts with the names of a job's status."""
        best, counts = self.best, Counter(trial.state for trial in self.trials.values())
        shown = None
        if best is not None:
            shown = TrialStatus(
                name=best.name,
                config=best.parameters,
                metric=best.metric,
                iteration=best.iteration,
                checkpoint=self.kept(best),
            )
        found = {state: counts[state] for state in ("running", "finished", "failed")}
        return shown, TrialsStatus(total=len(self.trials), **found)

    def together(self) -> Result | None:
        """One result for all trials: steps, iterations and episodes added up, rewards those of the best trial."""
        if not self._results:
            return None
        running = {trial.name for trial in self.in_state("running")}
        newest = self._results.get(self.best.name, {}) if self.best else {}
        rewards = {key: newest.get(f"episode_{key}") for key in ("reward_mean", "reward_min", "reward_max", "len_mean")}
        result: dict[str, Any] = {f"episode_{key}": value for key, value in rewards.items()}
        for key in SUMMED:
            result[key] = sum(one.get(key) or 0 for one in self._results.values())
        for key in SUMMED_NOW:
            result[key] = sum(one.get(key) or 0 for name, one in self._results.items() if name in running)
        result["timestamp"] = max(one.get("timestamp") or 0 for one in self._results.values())
        return result | {"info": {"learner": {}}, "done": False}


def finite(value: float | None) -> float | None:
    """`value`, or None for what is no number."""
    return None if value is None or not math.isfinite(value) else value
