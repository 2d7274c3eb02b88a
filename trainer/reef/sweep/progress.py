"""Publishes the progress of a sweep: in its file, in the state that is served, and as lines for people."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from reef.errors import CheckpointError
from reef.run.checkpoint import read_metadata
from reef.run.metrics import Result
from reef.run.process.identity import Claim
from reef.run.remote.mirror import Mirror
from reef.run.reporters.reporter import Run
from reef.run.stopping import StopConditions
from reef.sweep.plan import State, Trial, described
from reef.sweep.population import Exchange
from reef.sweep.record import Record
from reef.sweep.table import table

if TYPE_CHECKING:
    from reef.run.prometheus import RunState

PUBLISH_EVERY_S, SUM_UP_EVERY_S = 1.0, 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """How a sweep ended."""

    folder: Path
    exit_code: int
    reason: str
    best: Trial | None
    checkpoint: str | None  # where the newest of the best trial is kept
    uri: str | None = None  # of the folder in an object store


class SweepProgress:
    """Passes on what becomes of the trials; its methods are called in the driver's thread."""

    def __init__(
        self, record: Record, claim: Claim, stream: TextIO, run_state: RunState | None, mirror: Mirror | None = None
    ) -> None:
        """`mirror` keeps the sweep's own files in an object store."""
        self.record, self._claim, self._stream, self._run_state, self._mirror = record, claim, stream, run_state, mirror
        self._published_at, self._summed_up_at = 0.0, time.monotonic()
        self._checkpoint: str | None = None  # the one that `run_state` knows
        self._warned = False  # that the metric is in no result

    def start(self, algorithm: str, environment: str, stop: StopConditions) -> None:
        """Say what there is to do."""
        record = self.record
        place = record.uri or record.folder
        self._say(f"{algorithm} on {environment}, a sweep of {len(record.trials)} trials, results in {place}")
        if done := len(record.in_state("finished", "failed")):
            self._say(f"continuing: {done} trials have ended already")
        if self._run_state is not None:
            # workers are the trials' own, which report those that are missing
            run = Run(
                folder=record.folder,
                algorithm=algorithm,
                environment=environment,
                config={"num_rollout_workers": 0},
                stop=stop,
            )
            self._run_state.start(run)
        self.publish()

    def took(self, name: str, result: Result) -> None:
        """A trial has a new result."""
        self.record.take(name, result)
        self.publish_if_due()

    def leaves_lost_ones(self) -> bool:
        """Whether trials failed by faults alone; they wait for the sweep to be resumed."""
        for name in self.record.lost:
            self.changed(name, "waiting", self.record.trials[name].reason)
        return bool(self.record.lost)

    def changed(self, name: str, state: State, reason: str = "") -> None:
        """A trial has begun or ended."""
        trial = self.record.change(name, state, reason)
        values = described(trial.parameters)
        if state == "running":
            self._say(f"{name} ({values}) begins" + (f" after iteration {trial.iteration}" if trial.iteration else ""))
        elif state == "failed":
            self._say(f"{name} ({values}) failed: {reason}")
        else:
            ends = "ended" if state == "finished" else "is left unfinished"
            self._say(f"{name} ({values}) {ends} after iteration {trial.iteration}: {reason}; {self._value(trial)}")
            self._warn_of_absent(trial)
        self.publish()
        self._upload()

    def exchanged(self, name: str, change: Exchange) -> None:
        """A trial goes on from another one."""
        trial = self.record.trials[name]
        trial.parameters = change.parameters
        trial.reason = f"went on from {change.source} after iteration {trial.iteration}"
        self.publish()
        values = described(trial.parameters)
        self._say(f"{name} goes on from {change.source} after iteration {trial.iteration}, with {values}")
        self._upload()

    def _warn_of_absent(self, trial: Trial) -> None:
        if trial.state == "finished" and trial.metric is None and not self._warned:
            self._warned = True
            log.warning(
                "tune.metric: %r is no number in the newest result of %s, so it cannot be compared with others. "
                "The lines of its result.json show what there is.",
                self.record.metric, trial.name,
            )  # fmt: skip

    def _upload(self) -> None:
        if self._mirror is not None:
            self._mirror.changed()

    def publish_if_due(self) -> None:
        """Bring the file and `run_state` up to date when a second has passed; now and then say a line."""
        now = time.monotonic()
        if now - self._published_at >= PUBLISH_EVERY_S:
            self.publish()
        if now - self._summed_up_at >= SUM_UP_EVERY_S:
            self._summed_up_at = now
            self._say(f"{self.summary()}\n{table(self.record)}")
            self._upload()

    def publish(self) -> None:
        """Bring the file and `run_state` up to date."""
        self._published_at = time.monotonic()
        with self._claim.held(self.record.folder):
            self.record.write()
        if self._run_state is None:
            return
        self._run_state.swept(*self.record.status())
        if (result := self.record.together()) is not None:
            self._run_state.report(result)
        best = self.record.best
        if best and best.checkpoint and (kept := self.record.kept(best)) and best.checkpoint != self._checkpoint:
            self._checkpoint = best.checkpoint
            try:
                metadata = read_metadata(best.checkpoint)
                self._run_state.saved(Path(best.checkpoint), metadata["iteration"], metadata["time"], uri=kept)
            except (CheckpointError, OSError):  # replaced just now: the next one will be published
                self._checkpoint = None

    def summary(self) -> str:
        """The state of the sweep, in one line."""
        record = self.record
        counts = {state: len(record.in_state(state)) for state in ("finished", "failed", "running", "waiting")}
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        best = record.best
        return f"{len(record.trials)} trials: {text}" + (f"; best {best.name}: {self._value(best)}" if best else "")

    def _value(self, trial: Trial) -> str:
        return f"{self.record.metric} {'unknown' if trial.metric is None else format(trial.metric, '.6g')}"

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
