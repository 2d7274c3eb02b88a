"""The files of trials, wherever these run: results, curves and checkpoints are written where the sweep's folder is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals
from typing import Any

from reef.config import AlgorithmConfig
from reef.envs.failures import env_name
from reef.errors import EXIT_OK, CheckpointError
from reef.run.checkpoint import CheckpointStore, read_metadata
from reef.run.experiment import CheckpointSettings
from reef.run.folders import given_start, last_result, newest_start
from reef.run.metrics import Result
from reef.run.process.identity import Claim
from reef.run.remote.mirror import Mirror, Missing
from reef.run.reporters.files import ResultFiles
from reef.run.reporters.own import own_reporters
from reef.run.reporters.picture import draw_learning_curve
from reef.run.reporters.reporter import Reporter, Run, Summary
from reef.run.reporters.tensorboard import TensorBoardEvents
from reef.run.signals import EXIT_CODES
from reef.run.stopping import StopConditions
from reef.storage.object_store import RemoteFolder
from reef.types import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a trial needs to begin, or to go on."""

    config: AlgorithmConfig
    stop: StopConditions
    settings: CheckpointSettings
    folder: Path
    state: State | None  # to go on from
    checkpoint: Path | None  # the one in its folder with this state
    result: Result | None  # of the iteration that is restored


@dataclass(frozen=True, slots=True)
class Order:
    """That a trial is to end after its iteration."""

    reason: str
    finished: bool  # False: it goes on when the sweep does


@dataclass(frozen=True, slots=True)
class Restart:
    """That a trial is to begin again from its newest checkpoint, which holds what another trial learned."""


class TrialFolders:
    """Writes and reads the folder of every trial, and passes on which trial is to end.

    Trials may be on nodes that do not see the sweep's folder: with Ray, this is an actor on the node that does.
    """

    def __init__(
        self,
        folder: Path,
        configs: Mapping[str, AlgorithmConfig],
        stop: Mapping[str, float],
        settings: CheckpointSettings,
        claim: Claim,
        restore_from: str | None = None,
        uri: str | None = None,
    ) -> None:
        """`configs`: the settings of each trial by its name; `claim`: the driver's, to the sweep's folder.

        `uri` is the sweep's folder in an object store, if all is to be kept there too.
        """
        self._remote = RemoteFolder(uri) if uri else None
        self._stores: dict[str, CheckpointStore] = {}
        self._mirrors: dict[str, Mirror] = {}
        self._claim = claim
        self._folder, self._configs, self._settings = folder, dict(configs), settings
        self._stop, self._restore_from = StopConditions(stop), restore_from
        self._reporters: dict[str, list[Reporter]] = {}
        self._results: dict[str, Result | None] = {}  # the newest of each trial
        self._orders: dict[str, Order] = {}
        self._restarts: set[str] = set()
        self._for_all: Order | None = None
        self._failures: dict[str, str] = {}

    def begin(self, name: str) -> Beginning:
        """What trial `name` begins with: its newest valid checkpoint, or the one that all begin with."""
        config, folder, store = self._configs[name], self._folder / name, self._store_of(name)
        self._restarts.discard(name)
        store.clean()
        start = newest_start(store, config.algorithm) or given_start(self._restore_from, config.algorithm)
        state, own = (start.state, start.within(folder)) if start else (None, None)
        result = self._results[name] = last_result(folder, state["iteration"]) if own and state else None
        return Beginning(
            config=config,
            stop=self._stop,
            settings=self._settings,
            folder=folder,
            state=state,
            checkpoint=own,
            result=result,
        )

    def _store_of(self, name: str) -> CheckpointStore:
        """The checkpoints of a trial, which are uploaded as they come where there is an object store."""
        if name not in self._stores:
            store = CheckpointStore(self._folder / name, self._settings.keep, self._settings.score_attribute)
            self._stores[name] = store
            if self._remote is not None:
                self._mirrors[name] = Mirror(self._remote / name, store).__enter__()
        return self._stores[name]

    def start(self, name: str, run: Run) -> None:
        """A trial begins, perhaps again: then its reporters are made again."""
        self._finish_reporters(name, None)
        config = self._configs[name]
        own = own_reporters(config.logger_creator, config.logger_config)
        self._reporters[name] = [ResultFiles(), TensorBoardEvents(), *own]
        for reporter in self._reporters[name]:
            reporter.start(replace(run, sweep=self._folder.name))

    def report(self, name: str, result: Result) -> None:
        """Write a result of a trial."""
        self._results[name] = result
        with self._claim.held(self._folder):
            for reporter in self._reporters[name]:
                reporter.report(result)

    def save(self, name: str, state: State, metadata: dict[str, Any], score: float | None) -> Path:
        """Write a checkpoint of a trial and return its path."""
        with self._claim.held(self._folder):
            path = self._store_of(name).save(state, metadata, score)
        self._upload(name)
        return path

    def _upload(self, name: str) -> None:
        if name in self._mirrors:
            self._mirrors[name].changed()

    def check_store(self) -> None:
        """Raise `StorageError` where the object store does not take what this process, with its variables, writes."""
        if self._remote is not None:
            self._remote.check()

    def missing(self, name: str) -> Missing | None:
        """What an object store has not got of a trial."""
        return self._mirrors[name].missing if name in self._mirrors else None

    def missing_at_end(self) -> list[Missing]:
        """What an object store has not got of all trials, while the sweep ends."""
        found = [(mirror, mirror.missing) for mirror in self._mirrors.values()]
        for mirror, missing in found:
            if missing is not None:
                mirror.hurry()
        return [missing for _, missing in found if missing is not None]

    def finish(self, name: str, order: Order) -> None:
        """A trial has ended, for the reason in `order`."""
        config, folder = self._configs[name], self._folder / name
        summary = Summary(
            folder=folder,
            checkpoint=next(reversed(self._store_of(name).paths()), None),
            result=self._results.get(name),
            exit_code=EXIT_OK if order.finished else EXIT_CODES[Signals[order.reason]],
            reason=order.reason,
            picture=draw_learning_curve(folder, f"{name}: {config.algorithm} on {env_name(config.env)}"),
            uri=(self._remote / name).uri if self._remote else None,
        )
        self._finish_reporters(name, summary)
        self._upload(name)

    def _finish_reporters(self, name: str, summary: Summary | None) -> None:
        for reporter in self._reporters.pop(name, []):
            reporter.finish(summary)

    def end(self, name: str | None, order: Order) -> None:
        """Let a trial, or all of them, end after the iteration under way."""
        if name is None:
            self._for_all = order
        else:
            self._orders[name] = order

    def order(self, name: str) -> Order | Restart | None:
        """Whether a trial is to end, or to begin again."""
        restart = Restart() if name in self._restarts else None
        return self._orders.get(name) or self._for_all or restart

    def configure(self, name: str, config: AlgorithmConfig) -> None:
        """Set what a trial begins with."""
        self._configs[name] = config

    def exchange(self, name: str, source: str, config: AlgorithmConfig) -> None:
        """Have a trial go on from what trial `source` learned, with these settings.

        A checkpoint says so in its folder. The trial's own count of iterations and steps goes on.

        Raises:
            CheckpointError: one of the two has no checkpoint.
        """
        own, other = (newest_start(self._store_of(one), config.algorithm) for one in (name, source))
        if own is None or other is None:
            raise CheckpointError(f"{name if own is None else source} has no checkpoint")
        kept = {key: own.state["metrics"][key] for key in ("counters", "time_total_s", "experiment_id")}
        state = other.state | {key: own.state[key] for key in ("iteration", "counters")}
        state["metrics"] = other.state["metrics"] | kept
        metadata = read_metadata(other.checkpoint) | {"config": config.to_dict(), "iteration": state["iteration"]}
        self.save(name, state, metadata, None)
        self._configs[name] = config
        self._restarts.add(name)

    def fail(self, name: str, text: str) -> None:
        """Keep why a trial failed, for a driver that learns of it without the reason."""
        self._failures[name] = text
        self._finish_reporters(name, None)

    def failure(self, name: str) -> str | None:
        """Why a trial failed; None when its process could not say so."""
        return self._failures.pop(name, None)
