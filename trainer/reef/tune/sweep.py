"""Sweeps on Ray Tune: it places, starts, repeats and compares the trials; Reef trains in them and keeps the record.

Nothing of Tune's own files is kept or read again: they hold pickles. What a sweep goes on from is `trials.json` and the
trials' checkpoints.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

import ray
from ray import cloudpickle, tune
from ray.exceptions import RayError, RayTaskError
from ray.tune import Callback, Stopper
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reef.config import AlgorithmConfig
from reef.envs.failures import env_name
from reef.errors import EXIT_OK, EXIT_WRONG_USE, ConfigError, StorageError, TrainingError, WorkerError, sentence
from reef.run.checkpoint import CheckpointStore
from reef.run.experiment import CheckpointSettings, check_settings
from reef.run.folders import DEFAULT_FOLDER, places_of
from reef.run.process.deadline import Deadline
from reef.run.process.identity import Claim
from reef.run.prometheus import RunState
from reef.run.remote.mirror import SPARE_S, Mirror, Missing, end_limit, say_missing
from reef.run.signals import StopSignals
from reef.run.stopping import StopConditions
from reef.sweep.begin import begin
from reef.sweep.folders import Order, TrialFolders
from reef.sweep.plan import Plan
from reef.sweep.progress import SweepProgress, SweepSummary
from reef.sweep.record import Record
from reef.tune.trial import REPORT, TrialProcess, name_of, trial_config
from reef.tune.trial_schedulers import scheduler_of

log = logging.getLogger(__name__)
ANSWER_S, LOOK_AGAIN_S = 20.0, 0.5  # how long the files' keeper may take to answer, and when to ask it again
SETTLE_S = 1.0  # how long no trial may run before a sweep that is to end does so: trials may just be starting
TUNE = {  # what of Tune has a variable and no argument
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths of a user's environment mean what they mean elsewhere
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # before an episode ended there is no score
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # else it draws tables although it is set to be silent
}


def run_sweep(
    plan: Plan,
    *,
    stop: Mapping[str, float],
    checkpoint: CheckpointSettings,
    name: str,
    storage_path: str | Path,
    local_folder: str | Path = DEFAULT_FOLDER,
    resume: bool = False,
    restore_from: str | None = None,
    run_state: RunState | None = None,
    signals: StopSignals | None = None,
    max_failures: int = 3,
    stream: TextIO | None = None,
) -> SweepSummary:
    """Run the trials of `plan` in the Ray that this process has joined, each until a stop condition is met.

    The folder is `<storage_path>/<name>/sweep_<algorithm>_<environment>_<id>`, with a folder for each trial. `resume`
    goes on in the newest such folder: trials that have ended stay as they are, the others go on from their newest
    checkpoint. SIGTERM and Ctrl-C let every trial end after its iteration, with a checkpoint; where `signals` have a
    patience, those that have not are given up after it. A trial whose process or node is lost is started again
    `max_failures` times. A storage path in an object store gets a copy of what is written below `local_folder`.

    Raises:
        CheckpointError, ConfigError, StorageError: as `run_experiment`.
        TrainingError: every trial failed, as the job is wrong.
        WorkerError: every trial failed, and some by faults, which may heal: these wait for the sweep to be resumed.
    """
    check_settings(plan.base, stop, checkpoint, name)
    check_logger(plan.base)
    claim = Claim()
    parent, remote = places_of(storage_path, local_folder, name)
    record, restore_from = begin(plan, parent, claim, resume=resume, remote=remote, restore_from=restore_from)
    configs = {trial.name: plan.config(trial) for trial in record.trials.values()}
    with ExitStack() as stack:
        signals = stack.enter_context(signals or StopSignals())
        mirror = None
        if remote is not None:
            there = remote / record.folder.name
            record.uri = there.uri
            mirror = stack.enter_context(Mirror(there, CheckpointStore(record.folder), run_state, signals.deadline))
        progress = SweepProgress(record, claim, stream or sys.stdout, run_state, mirror)
        keeper_name = f"reef-sweep-{secrets.token_hex(8)}"
        arguments = record.folder, configs, stop, checkpoint, claim, restore_from, record.uri
        stack.enter_context(keeper_of(keeper_name, arguments, signals.deadline if remote else None))
        progress.start(plan.base.algorithm, env_name(plan.base.env), StopConditions(stop))
        if record.in_state("waiting"):
            run_trials(plan, configs, progress, signals, keeper_name, max_failures)
        return summarized(progress, signals)


def check_logger(config: AlgorithmConfig) -> None:
    """Raise `ConfigError` for a logger that cannot be sent to the process that writes the trials' files."""
    try:
        cloudpickle.dumps((config.logger_creator, config.logger_config))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(
            f"logger_creator={config.logger_creator!r}: it cannot be sent to the process that writes the files of a "
            f"sweep: {sentence(error)} Name a class at the top of a module, as 'package.module:Class'."
        ) from error


def run_trials(
    plan: Plan,
    configs: Mapping[str, AlgorithmConfig],
    progress: SweepProgress,
    signals: StopSignals,
    keeper_name: str,
    max_failures: int,
) -> None:
    """Let Tune run those that wait; returns when none runs any more."""
    keeper = ray.get_actor(keeper_name)
    config: dict[str, Any] = {"keeper": keeper_name, "metric": plan.tune.metric}
    waiting = [trial.name for trial in progress.record.in_state("waiting")]
    search: dict[str, Any] = {}
    if plan.tune.search == "optuna":
        from reef.tune.optuna_search import OptunaSearch

        search = {"search_alg": OptunaSearch(plan, progress, keeper), "num_samples": len(waiting)}
    else:
        config["trial"] = tune.grid_search([trial_config(name, configs[name]) for name in waiting])
    with quiet_tune() as folder:
        tune.run(
            TrialProcess,
            name=progress.record.folder.name,
            config=config,
            scheduler=scheduler_of(plan, progress, keeper),
            stop=EndOfAll(progress.record, signals),
            callbacks=[Watch(progress, keeper, signals)],
            max_concurrent_trials=plan.tune.max_concurrent_trials,
            max_failures=max_failures,
            trial_name_creator=name_of,
            trial_dirname_creator=name_of,
            storage_path=folder,
            raise_on_failed_trial=False,
            verbose=0,
            **search,
        )


@contextmanager
def keeper_of(name: str, arguments: Sequence[Any], uploads: Deadline | None) -> Iterator[None]:
    """Have the actor that writes the trials' files, `TrialFolders(*arguments)`: on this node, which has the folder.

    With `uploads`, leaving the context waits until the object store has them, as `Mirror` does for one run, or until
    that deadline.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options: dict[str, Any] = {"name": name, "num_cpus": 0, "scheduling_strategy": here}
    keeper: Any = ray.remote(TrialFolders).options(**options).remote(*arguments)
    kind: type[BaseException] | None = None
    try:
        if uploads is not None:
            check_store(keeper)
        yield
    except BaseException as error:
        kind = type(error)
        raise
    finally:
        try:
            if uploads is not None:
                await_uploads(keeper, kind, uploads)
        finally:
            ray.kill(keeper)


def check_store(keeper: Any) -> None:
    """Raise `StorageError` now where the actor cannot write what it is to upload for hours."""
    try:
        ray.get(keeper.check_store.remote())
    except RayTaskError as error:
        if not isinstance(error.cause, StorageError):
            raise
        if error.cause.exit_code != EXIT_WRONG_USE:
            raise error.cause from error
        raise StorageError(
            f"{error.cause} A process of Ray uploads the files of a sweep: it has the variables of the shell or "
            "pod that Ray was started in."
        ) from error


def await_uploads(keeper: Any, kind: type[BaseException] | None, end: Deadline) -> None:
    """Wait for the trials' uploads, in a sweep that ends well or with an exception of this `kind`."""
    deadline = time.monotonic() + end_limit(kind)
    while True:
        try:
            missing: list[Missing] = ray.get(keeper.missing_at_end.remote(), timeout=ANSWER_S)
        except RayError as error:
            missing = [Missing(f"what the trials wrote last may not be in the store: {error}", hopeless=True)]
        # Some time is left for the record, which is uploaded after them.
        out_of_time = time.monotonic() >= deadline or end.time_left() <= 2 * SPARE_S
        if out_of_time or all(one.hopeless for one in missing):
            break
        time.sleep(LOOK_AGAIN_S)
    if missing:
        others = f" So it is with {len(missing) - 1} more trials." if len(missing) > 1 else ""
        say_missing(missing[0].text + others, raising=kind is None)


@contextmanager
def quiet_tune() -> Iterator[str]:
    """A folder for what Tune writes, which goes with the block, and no lines of its own but errors."""
    before = {key: os.environ.get(key) for key in TUNE}
    os.environ.update(TUNE)
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what becomes of trials is said already
    try:
        with tempfile.TemporaryDirectory(prefix="reef-tune-", ignore_cleanup_errors=True) as folder:
            yield folder
    finally:
        logger.setLevel(level)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def summarized(progress: SweepProgress, signals: StopSignals) -> SweepSummary:
    """Say how the sweep ended."""
    record = progress.record
    unfinished = record.in_state("running", "waiting")
    for trial in record.in_state("running"):  # not reported in time
        progress.changed(trial.name, "waiting", "given up")
    progress.publish()
    reason, failed, best = progress.summary(), record.in_state("failed"), record.best
    found: dict[str, Any] = {"best": best, "checkpoint": record.place_of(best) if best else None, "uri": record.uri}
    if unfinished:
        assert signals.received is not None, "without a signal every trial comes to its end"
        return SweepSummary(
            folder=record.folder,
            exit_code=signals.exit_code,
            reason=f"{signals.received.name}; {reason}",
            **found,
        )
    if len(failed) == len(record.trials):
        reasons = "; ".join(dict.fromkeys(trial.reason for trial in failed))
        if progress.leaves_lost_ones():
            raise WorkerError(f"every trial of the sweep failed, and goes on when the sweep is resumed: {reasons}")
        raise TrainingError(f"every trial of the sweep failed: {reasons}")
    return SweepSummary(folder=record.folder, exit_code=EXIT_OK, reason=reason, **found)


class EndOfAll(Stopper):
    """Ends a sweep that got a signal: once every trial has ended, or when their time is over."""

    def __init__(self, record: Record, signals: StopSignals) -> None:
        self._record, self._signals = record, signals
        self._idle_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes its stopper to a file, which is not read."""
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Trials end by themselves."""
        return False

    def stop_all(self) -> bool:
        """Whether all that still runs is to be taken down."""
        if self._signals.received is None:
            return False
        now = time.monotonic()
        if self._record.in_state("running"):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        settled = self._idle_since is not None and now - self._idle_since >= SETTLE_S
        return settled or now >= self._signals.deadline.waiting_ends


class Watch(Callback):
    """Records what Tune and the trials report, and passes a signal on to the trials."""

    def __init__(self, progress: SweepProgress, keeper: Any, signals: StopSignals) -> None:
        self._progress, self._keeper, self._signals = progress, keeper, signals
        self._passed_on = False

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Look for a signal; file and run state are kept up to date also without results."""
        if self._signals.received is not None and not self._passed_on:
            self._passed_on = True
            ray.get(self._keeper.end.remote(None, Order(self._signals.received.name, finished=False)))
        self._progress.publish_if_due()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The process of a trial is there."""
        if self._signals.received is None:
            self._progress.changed(name_of(trial), "running")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has reported on a step."""
        name, report = name_of(trial), result[REPORT]
        if report.failure is not None:
            self._progress.changed(name, "failed", report.failure)
            return
        if report.result is not None:
            self._progress.took(name, report.result)
        if report.end is not None:
            self._progress.changed(name, "finished" if report.end.finished else "waiting", report.end.reason)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial was lost and is started again."""
        name = name_of(trial)
        self._progress.changed(name, "waiting", f"{self._why(name)}; it is started again")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial was lost too often."""
        name = name_of(trial)
        self._progress.record.lost.add(name)
        self._progress.changed(name, "failed", self._why(name))

    def _why(self, name: str) -> str:
        text: str | None = ray.get(self._keeper.failure.remote(name))
        return text or "its process died: killed, out of memory, or its node was lost"
