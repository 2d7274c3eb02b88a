"""One run, from a configuration to a result folder: train, report, write checkpoints, until it is to stop.

Everything that a person can get wrong is checked before anything is written: settings, stop keys, the storage path, the
checkpoint to start from, the environment. The folder appears with the first result.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reef.api.keys import stop_key_problem
from reef.config import AlgorithmConfig
from reef.envs.failures import env_name
from reef.errors import EXIT_OK, CallbackError, ConfigError, DamagedCheckpointError, WorkerError
from reef.rollout.local_workers import without_episodes
from reef.run.checkpoint import CheckpointStore, iteration_of, restoring
from reef.run.events import CheckpointSaved, Events, ResultReported, RunEnded, RunStarted
from reef.run.folders import Start, last_result, newer_start, newest_start
from reef.run.metrics import Result
from reef.run.process.deadline import Overdue
from reef.run.process.identity import Claim
from reef.run.remote.mirror import Mirror
from reef.run.reporters.picture import draw_learning_curve
from reef.run.reporters.reporter import Applications, Run, Summary
from reef.run.signals import StopSignals
from reef.run.stopping import StopConditions, absence, lookup, stop_problems
from reef.types import State

if TYPE_CHECKING:
    from reef.rollout.seams import Workers
    from reef.run.algorithm import Algorithm

log = logging.getLogger(__name__)
Gate = Callable[["Workers"], None]  # returns when the next iteration may begin; may resize the workers
ASKED_FOR = "done was set in the result"
SAVING_S = 60.0  # how long a rescue waits for a checkpoint that the main thread is writing


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """When checkpoints are written and which are kept."""

    frequency: int = 0  # iterations between two; 0: none on the way
    at_end: bool = True
    keep: int | None = None  # the best by `score_attribute`, and always the newest; None or 0: all
    score_attribute: str = "training_iteration"  # "min-" in front: the smallest is best

    @property
    def score_key(self) -> str:
        """The result field by which checkpoints are ranked."""
        return self.score_attribute.removeprefix("min-")


AT_END = CheckpointSettings()


def restore_start(
    algorithm: Algorithm, store: CheckpointStore, start: Start | None, claim: Claim
) -> tuple[Path | None, Result | None]:
    """Restore what a run starts from; returns its checkpoint and result if they are of the run's own folder.

    That folder is taken over only once all is checked: a run that cannot begin must not end the one that writes there.
    """
    folder = store.directory
    start = restored(algorithm, store, start)
    if folder.is_dir():
        claim.take(folder)
        store.clean()
        later = newer_start(store, start, algorithm.config.algorithm)
        start = restored(algorithm, store, later) or start
    checkpoint = start.within(folder) if start is not None else None
    return checkpoint, last_result(folder, algorithm.iteration) if checkpoint else None


def restored(algorithm: Algorithm, store: CheckpointStore, start: Start | None) -> Start | None:
    """Have `algorithm` take over what it starts from, or the one before where that is damaged; returns which it was."""
    while start is not None:
        try:
            with restoring(start.checkpoint):
                algorithm.take_over(start.state)
        except DamagedCheckpointError as error:
            own = start.within(store.directory)
            earlier = newest_start(store, algorithm.config.algorithm, before=own) if own else None
            if earlier is None:
                raise
            log.warning("skipping a checkpoint: %s", error)
            start = earlier
        else:
            return start
    return None


class Checkpoints(Protocol):
    """Where a run's checkpoints go: a folder here, or that of a sweep on another node."""

    def save(self, state: State, metadata: dict[str, Any], score: float | None = None) -> Path:
        """Write a checkpoint and return its path."""


@dataclass(kw_only=True)
class Experiment:
    """A run under way: `run` to its end, or `start` and one `iterate` after the other."""

    algorithm: Algorithm
    name: str
    folder: Path
    stop: StopConditions
    settings: CheckpointSettings
    store: Checkpoints
    signals: StopSignals
    gate: Gate = lambda workers: None
    mirror: Mirror | None = None
    checkpoint: Path | None = None  # the newest in this folder
    result: Result | None = None  # the newest; at first that of the iteration which is restored
    writing: Callable[[], AbstractContextManager[None]] = nullcontext  # around all that is written into the folder
    exit_code: int = field(default=EXIT_OK, init=False)
    warned: set[str] = field(default_factory=set, init=False)  # stop keys that are in no result so far
    saving: threading.RLock = field(default_factory=threading.RLock, init=False)  # by the main thread or a rescue

    @property
    def events(self) -> Events:
        """What happens in this run."""
        return self.algorithm.events

    def run(self) -> Summary:
        """Train to the end and say how it was; that it has ended is emitted also when it fails."""
        run, summary = self.start(), None
        try:
            summary = self._summarize(self._train(), run)
        finally:
            self.events.emit(RunEnded, summary)
        return summary

    def start(self) -> Run:
        """Say what is trained."""
        algorithm = self.algorithm
        run = Run(
            folder=self.folder,
            algorithm=algorithm.config.algorithm,
            environment=env_name(algorithm.config.env),
            config=algorithm.config.to_dict(),
            stop=self.stop,
            restored_iteration=algorithm.iteration,
            restored_timesteps=algorithm.counters.get("num_env_steps_sampled", 0),
            worker_problem=lambda: algorithm.workers.problem or algorithm.evaluation.problem,
            applications=self._applications,
        )
        self.events.emit(RunStarted, run)
        if self.checkpoint is not None:
            self.events.emit(CheckpointSaved, self.checkpoint, algorithm.iteration, None)
        return run

    def _applications(self) -> Applications | None:
        """What applications have at the policy server of this process, if there is one."""
        # that of an ExternalWorker, which no other worker has
        source = getattr(self.algorithm.workers.local_worker(), "source", None)
        found: Applications | None = source.applications() if source else None
        return found

    def _train(self) -> str:
        """Iterate and return the reason of the end."""
        reason = self.reason()  # a run that had reached its end is not trained further by resuming it
        while reason is None:
            try:
                self.signals.install()  # again, as Ray puts a handler of its own when it starts
                self.gate(self.algorithm.workers)
                reason = self.iterate()
            except Overdue:
                return self._cut_short()
        return reason

    def iterate(self) -> str | None:
        """Train, report and save once; returns the reason to end, if there is one."""
        self.result = self.algorithm.train()
        phases = ", ".join(f"{name} {took:.1f}" for name, took in self.result.get("timers", {}).items())
        log.debug("iteration %d took, by phase: %s", self.algorithm.iteration, phases)
        reason = self.reason() or (ASKED_FOR if self.result["done"] else None)
        self._warn_of_absent()
        identity = {"trial_id": self.folder.name.rpartition("_")[2], "experiment_tag": self.name}
        self.result.update(done=reason is not None, **identity)
        try:
            with self.writing():
                self.events.emit(ResultReported, self.result)
            self.stop.check(self.result)
        except (CallbackError, ConfigError):  # of the user's reporter, or a stop key: what was learned is kept
            self.save()
            raise
        if self._checkpoint_is_due(ending=reason is not None):
            self.save()
        return reason

    def _warn_of_absent(self) -> None:
        assert self.result is not None, "an iteration has ended"
        for key in self.stop.absent(self.result):
            if key not in self.warned:
                self.warned.add(key)
                log.warning(
                    "stop: %r is no number in the result of iteration %d, so it cannot end the run so far. "
                    "The lines of result.json show what there is.",
                    key, self.algorithm.iteration,
                )  # fmt: skip

    def _cut_short(self) -> str:
        """End although the iteration has not: what was learnt since the newest checkpoint is kept."""
        assert self.signals.received is not None, "without a signal nothing is overdue"
        self.exit_code = self.signals.exit_code
        if self.is_unsaved:
            self.save()
        return self.signals.received.name

    def reason(self) -> str | None:
        """Why the run ends with the newest result; None while it goes on."""
        if reached := self.stop.reached(self.result or {}):
            self.exit_code = EXIT_OK
            return reached
        if self.signals.received is None:
            return None
        self.exit_code = self.signals.exit_code
        return self.signals.received.name

    def _checkpoint_is_due(self, *, ending: bool) -> bool:
        if self.settings.frequency and self.algorithm.iteration % self.settings.frequency == 0:
            return True
        return ending and (self.settings.at_end or self.signals.received is not None)

    def rescue(self) -> str | None:
        """Save from another thread what was learned, while the main thread is in an environment.

        Learners rest while that samples, and the episodes under way are left out. Returns what was saved, None when
        the main thread goes on: it began or ended a sample meanwhile, so that it may have learned and the state may be
        a mixture, or it was about to save and has done so.
        """
        if not self.saving.acquire(blocking=False):
            if not self.saving.acquire(timeout=SAVING_S):
                return "a checkpoint that was being saved is not whole."
            self.saving.release()
            return None
        try:
            if self.is_unsaved:
                before = [samples for samples, _ in self.algorithm.progress()]
                state = self.algorithm.state()
                if [samples for samples, _ in self.algorithm.progress()] != before:
                    return None
                self.save(state | {"workers": without_episodes(state["workers"])})
            if self.mirror is not None:
                self.mirror.__exit__(WorkerError, None, None)  # as a fault in the main thread would
            return f"what was learned is in {self.checkpoint}." if self.checkpoint else "nothing was saved so far."
        finally:
            self.saving.release()

    @property
    def is_unsaved(self) -> bool:
        """Whether the result that was reported last is newer than the newest checkpoint."""
        saved = iteration_of(self.checkpoint.name) if self.checkpoint else 0
        return self.result is not None and self.algorithm.iteration > saved

    def save(self, state: State | None = None) -> None:
        """Write a checkpoint of the iteration that was reported last, from the present state if none is given."""
        assert self.result is not None, "an iteration was reported"
        began = time.monotonic()
        metadata, score = self.algorithm.metadata(), lookup(self.result, self.settings.score_key)
        with self.saving, self.writing():
            self.checkpoint = self.store.save(state or self.algorithm.state(), metadata, score)
        elapsed_s = time.monotonic() - began
        if log.isEnabledFor(logging.DEBUG):
            size = sum(file.stat().st_size for file in self.checkpoint.glob("*"))
            log.debug("checkpoint %s: %d bytes, written in %.3f s", self.checkpoint, size, elapsed_s)
        self.events.emit(CheckpointSaved, self.checkpoint, self.algorithm.iteration, elapsed_s)

    def _summarize(self, reason: str, run: Run) -> Summary:
        return Summary(
            folder=self.folder,
            checkpoint=self.checkpoint,
            result=self.result,
            exit_code=self.exit_code,
            reason=reason,
            picture=draw_learning_curve(self.folder, f"{run.algorithm} on {run.environment}"),
            uri=self.mirror.uri if self.mirror else None,
        )


def check_settings(
    config: AlgorithmConfig, stop: Mapping[str, float], checkpoint: CheckpointSettings, name: str
) -> AlgorithmConfig:
    """The checked settings; raises a `ConfigError` with everything that is wrong with what a run is asked to do."""
    problems = stop_problems(stop)
    problems += [f"stop: {key!r} {problem}" for key in stop if (problem := absence(str(key), config))]
    try:
        config = config.checked()
    except ConfigError as error:
        problems.insert(0, str(error))
    score = checkpoint.score_key
    if problem := stop_key_problem(score) or absence(score, config):
        problems.append(f"checkpoint: score attribute {score!r} {problem}")
    problems += [
        f"checkpoint: {key}={value}: expected 0 or more."
        for key, value in (("frequency", checkpoint.frequency), ("keep", checkpoint.keep or 0))
        if value < 0
    ]
    if not re.fullmatch(r"[\w.-]+", name) or not name.strip("."):
        problems.append(f"name={name!r}: it names a folder, so that only letters, digits, '.', '_' and '-' go.")
    if problems:
        raise ConfigError("\n".join(problems))
    return config
