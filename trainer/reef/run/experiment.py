"""One run, from a configuration to a result folder: train, report, write checkpoints, until it is to stop.

Everything that a person can get wrong is checked before anything is written: settings, stop keys, the storage path, the
checkpoint to start from, the environment. The folder appears with the first result.
"""

from __future__ import annotations

import logging
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef.api.stop import stop_key_problem
from reef.config import AlgorithmConfig
from reef.errors import EXIT_OK, CheckpointError, ConfigError, StorageError
from reef.run.checkpoint import CheckpointStore, find_checkpoint, read_checkpoint, read_metadata
from reef.run.identity import Claim
from reef.run.metrics import Result
from reef.run.reporters.console import Console
from reef.run.reporters.files import ResultFiles, read_results
from reef.run.reporters.picture import draw_learning_curve
from reef.run.reporters.reporter import Reporter, Run, Summary
from reef.run.reporters.tensorboard import TensorBoardEvents
from reef.run.signals import Overdue, StopSignals
from reef.run.stopping import StopConditions, lookup, stop_problems

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm
    from reef.run.prometheus import Board

log = logging.getLogger(__name__)
FOLDER_ID = r"\d{8}-\d{6}-[0-9a-f]{6}"  # UTC time first, so that names sort by age


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """When checkpoints are written and which are kept."""

    frequency: int = 0  # iterations between two; 0: none on the way
    at_end: bool = True
    keep: int | None = None  # the best by `score_attribute`, and always the newest; None or 0: all
    score_attribute: str = "training_iteration"  # "min-" in front: the smallest is best


def run_experiment(
    config: AlgorithmConfig,
    *,
    stop: Mapping[str, float],
    checkpoint: CheckpointSettings | None = None,
    name: str = "default",
    storage_path: str | Path = "~/reef_results",
    resume: bool = False,
    restore_from: str | None = None,
    metrics_port: int | None = None,
    metrics_address: str = "127.0.0.1",
    board: Board | None = None,
    patience_s: float | None = None,
    verbosity: int = 0,
    reporters: Sequence[Reporter] | None = None,
) -> Summary:
    """Train until a stop condition is met, in the folder `<storage_path>/<name>/<algorithm>_<environment>_<id>`.

    `resume` goes on in the newest such folder from its newest valid checkpoint, or starts where there is none;
    `restore_from` starts a new folder from a checkpoint of another run. SIGTERM and Ctrl-C end the run after the
    iteration under way, with a checkpoint and the exit code 143 or 130; a second Ctrl-C aborts. `reporters` replaces
    the console, for tests and notebooks. `board` is one that the caller serves, in place of `metrics_port`. With
    `patience_s`, an iteration that long after SIGTERM is given up when it waits for workers, which may be gone.

    Raises:
        ConfigError: settings, stop keys or names are wrong; with all problems.
        StorageError: the storage path cannot be written.
        CheckpointError: the checkpoint to start from is missing, damaged or of another algorithm.
        Overdue: SIGTERM came, and workers that are not there were waited for before the first iteration.
    """
    settings = checkpoint or CheckpointSettings()
    check_settings(config, stop, settings, name)
    claim = Claim()
    folder, start = choose_folder(config, writable_folder(storage_path, name), resume, restore_from, claim)
    with ExitStack() as stack:
        board = board or _serve_metrics(stack, metrics_port, metrics_address)
        signals = stack.enter_context(StopSignals(patience_s))
        algorithm = stack.enter_context(config.build())
        if start is not None:
            algorithm.set_state(read_state(start, config.algorithm))
        shown = [Console(lines=verbosity > 0)] if reporters is None else reporters
        experiment = Experiment(
            algorithm=algorithm,
            name=name,
            folder=folder,
            stop=StopConditions(stop),
            settings=settings,
            signals=signals,
            reporters=[ResultFiles(), TensorBoardEvents(), *([board] if board else []), *shown],
            board=board,
            checkpoint=start if start and start.parent == folder else None,
            writing=lambda: claim.held(folder),
        )
        return experiment.run()


@dataclass(kw_only=True)
class Experiment:
    """A run under way."""

    algorithm: Algorithm
    name: str
    folder: Path
    stop: StopConditions
    settings: CheckpointSettings
    signals: StopSignals
    reporters: list[Reporter]
    board: Board | None = None
    checkpoint: Path | None = None  # the newest in this folder
    result: Result | None = field(default=None, init=False)
    writing: Callable[[], AbstractContextManager[None]] = nullcontext  # around all that is written into the folder
    exit_code: int = field(default=EXIT_OK, init=False)

    def run(self) -> Summary:
        """Train to the end and say how it was; reporters are finished also when it fails."""
        algorithm = self.algorithm
        self.store = CheckpointStore(self.folder, self.settings.keep, self.settings.score_attribute)
        self.store.clean()
        run = Run(
            folder=self.folder,
            algorithm=algorithm.config.algorithm,
            environment=environment_name(algorithm.config),
            config=algorithm.config.to_dict(),
            stop=self.stop,
            restored_iteration=algorithm.iteration,
            restored_timesteps=algorithm.counters.get("num_env_steps_sampled", 0),
            grow=algorithm.workers.grow,
        )
        summary = None
        for reporter in self.reporters:
            reporter.start(run)
        if self.board is not None and self.checkpoint is not None:
            self.board.saved(self.checkpoint, algorithm.iteration, read_metadata(self.checkpoint)["time"])
        try:
            summary = self._summarize(self._train(), run)
        finally:
            for reporter in self.reporters:
                reporter.finish(summary)
        return summary

    def _train(self) -> str:
        """Iterate and return the reason of the end."""
        self.result = self._last_result()
        reason = self._reason()  # a run that had reached its end is not trained further by resuming it
        while reason is None:
            try:
                reason = self._iterate()
            except Overdue:
                return self._cut_short()
        return reason

    def _iterate(self) -> str | None:
        """Train, report and save once; returns the reason to end, if there is one."""
        self.signals.install()  # again, as Ray puts a handler of its own when it starts
        self.result = self.algorithm.train()
        reason = self._reason()
        identity = {"trial_id": self.folder.name.rpartition("_")[2], "experiment_tag": self.name}
        self.result.update(done=reason is not None, **identity)
        with self.writing():
            for reporter in self.reporters:
                reporter.report(self.result)
        if self._checkpoint_is_due(ending=reason is not None):
            self._save()
        return reason

    def _cut_short(self) -> str:
        """End although the iteration has not: what was learnt since the newest checkpoint is kept."""
        assert self.signals.received is not None, "without a signal nothing is overdue"
        self.exit_code = self.signals.exit_code
        saved = read_metadata(self.checkpoint)["iteration"] if self.checkpoint else 0
        if self.result is not None and self.algorithm.iteration > saved:
            self._save()
        return self.signals.received.name

    def _reason(self) -> str | None:
        if reached := self.stop.reached(self.result or {}):
            self.exit_code = EXIT_OK
            return reached
        if self.signals.received is None:
            return None
        self.exit_code = self.signals.exit_code
        return self.signals.received.name

    def _last_result(self) -> Result | None:
        """The result of the restored iteration, where this folder has it."""
        results = list(read_results(self.folder, until=self.algorithm.iteration)) if self.checkpoint else []
        return results[-1] if results else None

    def _checkpoint_is_due(self, *, ending: bool) -> bool:
        if ending:
            return self.settings.at_end or self.signals.received is not None
        return bool(self.settings.frequency) and self.algorithm.iteration % self.settings.frequency == 0

    def _save(self) -> None:
        assert self.result is not None, "an iteration was reported"
        began = time.monotonic()
        metadata, score = self.algorithm.metadata(), lookup(self.result, self.store.score_key)
        with self.writing():
            self.checkpoint = self.store.save(self.algorithm.state(), metadata, score)
        if self.board is not None:
            when = read_metadata(self.checkpoint)["time"]
            self.board.saved(self.checkpoint, self.algorithm.iteration, when, time.monotonic() - began)

    def _summarize(self, reason: str, run: Run) -> Summary:
        return Summary(
            folder=self.folder,
            checkpoint=self.checkpoint,
            result=self.result,
            exit_code=self.exit_code,
            reason=reason,
            picture=draw_learning_curve(self.folder, f"{run.algorithm} on {run.environment}"),
        )


def check_settings(
    config: AlgorithmConfig, stop: Mapping[str, float], checkpoint: CheckpointSettings, name: str
) -> None:
    """Raise a `ConfigError` with everything that is wrong with what a run is asked to do."""
    problems = stop_problems(stop)
    try:
        config.validate()
    except ConfigError as error:
        problems.insert(0, str(error))
    score = checkpoint.score_attribute.removeprefix("min-")
    if problem := stop_key_problem(score):
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


def writable_folder(path: str | Path, name: str = "") -> Path:
    """The absolute `path`/`name`, which need not exist; raises `StorageError` when nothing can be written there."""
    if "://" in str(path):
        raise StorageError(f"storage path {path}: only folders of this machine are available yet. Give one of them.")
    folder = Path(path).expanduser().absolute() / name
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return folder
    except OSError as error:
        raise StorageError(
            f"storage path {path}: {folder} cannot be written ({existing}: {error.strerror}). Give another one."
        ) from error


def choose_folder(
    config: AlgorithmConfig, parent: Path, resume: bool, restore_from: str | None, claim: Claim
) -> tuple[Path, Path | None]:
    """The folder of this run and the checkpoint to start from, if any; one to resume is taken over by `claim`."""
    label = f"{config.algorithm}_{re.sub(r'[^A-Za-z0-9.-]+', '-', environment_name(config))}"
    if resume:
        earlier = [path for path in parent.glob(f"{label}_*") if re.fullmatch(f"{label}_{FOLDER_ID}", path.name)]
        if earlier:
            newest = max(earlier)
            claim.take(newest)
            store = CheckpointStore(newest)
            store.clean()
            if (checkpoint := store.newest_valid()) is None:
                log.warning("no valid checkpoint in %s: its run begins anew", newest)
            return newest, checkpoint or _given(restore_from)
        log.warning("nothing to resume: there is no %s in %s, so that a new run begins", label, parent)
    folder_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return parent / f"{label}_{folder_id}", _given(restore_from)


def _given(restore_from: str | None) -> Path | None:
    return find_checkpoint(restore_from) if restore_from else None


def read_state(path: Path, algorithm: str) -> dict[str, Any]:
    """The state in a checkpoint; raises `CheckpointError` when another algorithm wrote it."""
    state, metadata = read_checkpoint(path)
    if metadata.get("algorithm") != algorithm:
        raise CheckpointError(
            f"{path} was written by {metadata.get('algorithm')}, but {algorithm} is to be trained: "
            "give a checkpoint of the same algorithm."
        )
    return state


def environment_name(config: AlgorithmConfig) -> str:
    """The environment's name for people."""
    return config.env if isinstance(config.env, str) else getattr(config.env, "__name__", str(config.env))


def _serve_metrics(stack: ExitStack, port: int | None, address: str) -> Board | None:
    if port is None:
        return None
    from reef.run.prometheus import Board, MetricsServer  # start-up pays for it only where it is used

    board = Board()
    server = MetricsServer(board, port, address)
    stack.callback(server.stop)
    log.info("metrics on http://%s:%s/metrics", address, server.port)
    return board
