"""One run, from a configuration to a result folder: train, report, write checkpoints, until it is to stop.

Everything that a person can get wrong is checked before anything is written: settings, stop keys, the storage path, the
checkpoint to start from, the environment. The folder appears with the first result.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reef.api.keys import stop_key_problem
from reef.config import AlgorithmConfig
from reef.errors import EXIT_OK, ConfigError, DamagedCheckpointError, WorkerError
from reef.rollout.local_workers import without_episodes
from reef.run.checkpoint import CheckpointStore, iteration_of, read_metadata, restoring
from reef.run.folders import (
    DEFAULT_FOLDER,
    Start,
    choose_folder,
    environment_name,
    last_result,
    newer_start,
    newest_start,
    places_of,
)
from reef.run.identity import Claim
from reef.run.metrics import Result
from reef.run.remote.mirror import Mirror
from reef.run.reporters.console import Console
from reef.run.reporters.files import ResultFiles
from reef.run.reporters.picture import draw_learning_curve
from reef.run.reporters.reporter import Reporter, Run, Summary
from reef.run.reporters.tensorboard import TensorBoardEvents
from reef.run.signals import Overdue, StopSignals
from reef.run.stopping import StopConditions, absence, lookup, stop_problems
from reef.run.watchdog import ReportEnd, Watchdog
from reef.types import State

if TYPE_CHECKING:
    from reef.rollout.seams import Workers
    from reef.run.algorithm import Algorithm
    from reef.run.prometheus import RunState

log = logging.getLogger(__name__)
Gate = Callable[["Workers"], None]  # returns when the next iteration may begin; may resize the workers
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


def run_experiment(
    config: AlgorithmConfig,
    *,
    stop: Mapping[str, float],
    checkpoint: CheckpointSettings = CheckpointSettings(),
    name: str = "default",
    storage_path: str | Path = DEFAULT_FOLDER,
    local_folder: str | Path = DEFAULT_FOLDER,
    resume: bool = False,
    restore_from: str | None = None,
    metrics_port: int | None = None,
    metrics_address: str = "127.0.0.1",
    run_state: RunState | None = None,
    patience_s: float | None = None,
    say: ReportEnd | None = None,
    gate: Gate = lambda workers: None,
    verbosity: int = 0,
    reporters: Sequence[Reporter] | None = None,
) -> Summary:
    """Train until a stop condition is met, in the folder `<storage_path>/<name>/<algorithm>_<environment>_<id>`.

    An object store as storage path gets a copy of what is below `local_folder`. `resume` goes on from the newest valid
    checkpoint of such a folder, `restore_from` from one of another run. A signal ends the run after its iteration, with
    a checkpoint, or `patience_s` later. `gate` is called between iterations, `say` when the process hangs.

    Raises:
        ConfigError: settings, stop keys or names are wrong; with all problems.
        StorageError: the storage path cannot be written (later a WriteError: a retry goes on), or uploads are missing.
        CheckpointError: the checkpoint to start from is missing, damaged or of another algorithm.
        Overdue: SIGTERM came, and workers that are not there were waited for before the first iteration.
    """
    check_settings(config, stop, checkpoint, name)
    parent, remote = places_of(storage_path, local_folder, name)
    folder, start = choose_folder(config, parent, resume, restore_from, remote)
    with ExitStack() as stack:
        run_state = run_state or serve_metrics(stack, metrics_port, metrics_address)
        signals = stack.enter_context(StopSignals(patience_s))
        watchdog = stack.enter_context(Watchdog(config, patience_s, say))
        algorithm = stack.enter_context(config.build())
        store, claim = CheckpointStore(folder, checkpoint.keep, checkpoint.score_attribute), Claim()
        own = begin(algorithm, store, start, claim)
        del start  # what it holds may be large
        experiment = Experiment(
            algorithm=algorithm,
            name=name,
            folder=folder,
            stop=StopConditions(stop),
            settings=checkpoint,
            store=store,
            mirror=stack.enter_context(Mirror(remote / folder.name, store, run_state)) if remote else None,
            signals=signals,
            reporters=reporters_of(run_state, [Console(lines=verbosity > 0)] if reporters is None else reporters),
            run_state=run_state,
            gate=gate,
            checkpoint=own,
            result=last_result(folder, algorithm.iteration) if own else None,
            writing=lambda: claim.held(folder),
        )
        watchdog.begin(experiment)
        return experiment.run()


def begin(algorithm: Algorithm, store: CheckpointStore, start: Start | None, claim: Claim) -> Path | None:
    """Restore what a run starts from; returns the checkpoint if it is of the run's own folder, which is gone on with.

    That folder is taken over only once all is checked: a run that cannot begin must not end the one that writes there.
    """
    folder = store.directory
    start = restored(algorithm, store, start)
    if folder.is_dir():
        claim.take(folder)
        store.clean()
        later = newer_start(store, start, algorithm.config.algorithm)
        start = restored(algorithm, store, later) or start
    return start.within(folder) if start is not None else None


def restored(algorithm: Algorithm, store: CheckpointStore, start: Start | None) -> Start | None:
    """Have `algorithm` take over what it starts from, or the one before where that is damaged; returns which it was."""
    while start is not None:
        try:
            with restoring(start.checkpoint):
                algorithm.set_state(start.state)
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
    reporters: list[Reporter]
    run_state: RunState | None = None
    gate: Gate = lambda workers: None
    mirror: Mirror | None = None
    checkpoint: Path | None = None  # the newest in this folder
    result: Result | None = None  # the newest; at first that of the iteration which is restored
    writing: Callable[[], AbstractContextManager[None]] = nullcontext  # around all that is written into the folder
    exit_code: int = field(default=EXIT_OK, init=False)
    warned: set[str] = field(default_factory=set, init=False)  # stop keys that are in no result so far
    saving: threading.RLock = field(default_factory=threading.RLock, init=False)  # by the main thread or a rescue

    def run(self) -> Summary:
        """Train to the end and say how it was; reporters are finished also when it fails."""
        run, summary = self.start(), None
        try:
            summary = self._summarize(self._train(), run)
        finally:
            for reporter in self.reporters:
                reporter.finish(summary)
        return summary

    def start(self) -> Run:
        """Tell the reporters what is trained."""
        algorithm = self.algorithm
        run = Run(
            folder=self.folder,
            algorithm=algorithm.config.algorithm,
            environment=environment_name(algorithm.config),
            config=algorithm.config.to_dict(),
            stop=self.stop,
            restored_iteration=algorithm.iteration,
            restored_timesteps=algorithm.counters.get("num_env_steps_sampled", 0),
            worker_problem=lambda: algorithm.workers.problem,
        )
        for reporter in self.reporters:
            reporter.start(run)
        if self.run_state is not None and self.checkpoint is not None and self.mirror is None:
            self.run_state.saved(self.checkpoint, algorithm.iteration, read_metadata(self.checkpoint)["time"])
        return run

    def _train(self) -> str:
        """Iterate and return the reason of the end."""
        reason = self.reason()  # a run that had reached its end is not trained further by resuming it
        while reason is None:
            try:
                self.signals.install()  # again, as Ray puts a handler of its own when it starts
                reason = self.iterate()
                if reason is None:
                    self.gate(self.algorithm.workers)
            except Overdue:
                return self._cut_short()
        return reason

    def iterate(self) -> str | None:
        """Train, report and save once; returns the reason to end, if there is one."""
        self.result = self.algorithm.train()
        reason = self.reason()
        self._warn_of_absent()
        identity = {"trial_id": self.folder.name.rpartition("_")[2], "experiment_tag": self.name}
        self.result.update(done=reason is not None, **identity)
        with self.writing():
            for reporter in self.reporters:
                reporter.report(self.result)
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
        if self.result is not None and self.algorithm.iteration > self._saved_iteration():
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

    def progress(self) -> object:
        """As `Algorithm.progress`."""
        return self.algorithm.progress()

    def rescue(self) -> str | None:
        """Save from another thread what was learned, while the main thread is in an environment.

        Learners rest while that samples, and the episodes under way are left out. Returns what was saved, None when
        the main thread goes on: it began or ended a sample meanwhile, so that it may have learned and the state may be
        a mixture, or it was about to save and has done so.
        """
        if self.saving.acquire(blocking=False):
            try:
                return self._rescue()
            finally:
                self.saving.release()
        if self.saving.acquire(timeout=SAVING_S):
            self.saving.release()
            return None
        return "a checkpoint that was being saved is not whole."

    def _rescue(self) -> str | None:
        if self.result is not None and self.algorithm.iteration > self._saved_iteration():
            before = [samples for samples, _ in self.algorithm.progress()]
            state = self.algorithm.state()
            if [samples for samples, _ in self.algorithm.progress()] != before:
                return None
            self.save(state | {"workers": without_episodes(state["workers"])})
        if self.mirror is not None:
            self.mirror.__exit__(WorkerError, None, None)  # as a fault in the main thread would
        return f"what was learned is in {self.checkpoint}." if self.checkpoint else "nothing was saved so far."

    def _saved_iteration(self) -> int:
        """The iteration of the newest checkpoint, 0 without one."""
        return iteration_of(self.checkpoint.name) if self.checkpoint else 0

    def save(self, state: State | None = None) -> None:
        """Write a checkpoint of the iteration that was reported last, from the present state if none is given."""
        assert self.result is not None, "an iteration was reported"
        began = time.monotonic()
        metadata, score = self.algorithm.metadata(), lookup(self.result, self.settings.score_key)
        with self.saving, self.writing():
            self.checkpoint = self.store.save(state or self.algorithm.state(), metadata, score)
        if self.mirror is not None:
            self.mirror.changed()  # which tells `run_state` when it is in the store
        elif self.run_state is not None:
            when = read_metadata(self.checkpoint)["time"]
            self.run_state.saved(self.checkpoint, self.algorithm.iteration, when, time.monotonic() - began)

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


def reporters_of(run_state: RunState | None, shown: Sequence[Reporter]) -> list[Reporter]:
    """Who is told of a run: its files, `run_state` if there is one, and those who show it."""
    return [ResultFiles(), TensorBoardEvents(), *([run_state] if run_state else []), *shown]


def check_settings(
    config: AlgorithmConfig, stop: Mapping[str, float], checkpoint: CheckpointSettings, name: str
) -> None:
    """Raise a `ConfigError` with everything that is wrong with what a run is asked to do."""
    problems = stop_problems(stop)
    problems += [f"stop: {key!r} {problem}" for key in stop if (problem := absence(str(key), config))]
    try:
        config.validate()
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


def serve_metrics(stack: ExitStack, port: int | None, address: str = "127.0.0.1") -> RunState | None:
    """A run state that is served until `stack` is closed, or None without a port."""
    if port is None:
        return None
    from reef.run.prometheus import MetricsServer, RunState  # start-up pays for it only where it is used

    run_state = RunState()
    server = MetricsServer(run_state, port, address)
    stack.callback(server.stop)
    log.info("metrics on http://%s:%s/metrics", address, server.port)
    return run_state
