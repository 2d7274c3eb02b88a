"""One trial of a sweep, in a process that Ray Tune places and starts: an experiment whose files are elsewhere."""

from __future__ import annotations

import copy
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.tune import PlacementGroupFactory, Trainable

from reef.config import AlgorithmConfig
from reef.distributed.resources import trial_bundles
from reef.errors import EXIT_WRONG_USE, ReefError, StoreUnavailableError
from reef.output import send_output
from reef.run.algorithm import Algorithm
from reef.run.build import begin
from reef.run.checkpoint import restoring
from reef.run.experiment import Experiment
from reef.run.folders import with_output_in
from reef.run.metrics import Result
from reef.run.remote.mirror import END_S
from reef.run.reporters.reporter import Reporter, Run
from reef.run.signals import StopSignals
from reef.run.stopping import lookup
from reef.sweep.folders import Beginning, Order, Restart
from reef.sweep.record import finite
from reef.types import State

LOOK_AGAIN_S = 0.5  # how often a trial that is through looks whether the object store has all of it
REPORT = "reef"  # the key in Tune's results under which a trial reports on its steps
SCORE = "score"  # the key by which Tune compares; not there while the metric has no value


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a trial reports on one step; no mapping, which Tune would take apart."""

    result: Result | None = None  # the newest
    end: Order | None = None
    failure: str | None = None


def trial_config(name: str, config: AlgorithmConfig) -> dict[str, Any]:
    """What Tune knows of a trial: its name and what it reserves. Its settings are with the keeper of its files."""
    return {"name": name, "bundles": trial_bundles(config), "strategy": config.placement_strategy}


def name_of(trial: Any) -> str:
    """The name in the record of one of Tune's trials."""
    name: str = trial.config["trial"]["name"]
    return name


class TrialProcess(Trainable):
    """Trains as one run does, one iteration a step.

    It ends by itself, also when asked to, so that its checkpoint is written before Tune takes the process down. A
    trial that is wrong reports it and is done; any other failure is raised, and Tune starts the trial again.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """The room of the trial's processes."""
        trial = config["trial"]
        return PlacementGroupFactory(trial["bundles"], strategy=trial["strategy"])

    def setup(self, config: dict[str, Any]) -> None:
        """Find the files' keeper; all else happens in the first step, whose failures can be reported."""
        self._name: str = config["trial"]["name"]
        send_output(self._name)
        self._metric: str = config["metric"]
        self._files = TrialFiles(self._name, ray.get_actor(config["keeper"]))
        self._experiment: Experiment | None = None
        self._ending = ExitStack()

    def step(self) -> dict[str, Any]:
        """Train for an iteration and report on it."""
        try:
            return self._step()
        except Exception as error:
            cause = getattr(error, "cause", error)  # what the keeper raised, without Ray's wrapping
            text = str(cause) if isinstance(cause, ReefError) else f"{type(cause).__name__}: {cause}"
            self._files.ask("fail", text)
            if isinstance(cause, ReefError) and cause.exit_code == EXIT_WRONG_USE:
                return {"done": True, REPORT: StepReport(failure=text)}
            raise

    def _step(self) -> dict[str, Any]:
        if self._experiment is None:
            self._experiment = self._begin()
        experiment = self._experiment
        if reason := experiment.reason():  # it had reached its end when it was cut off
            return self._report(experiment, Order(reason, finished=True))
        order = self._files.ask("order")
        if isinstance(order, Restart):
            self._ending.close()
            experiment = self._experiment = self._begin()
        elif order:
            if experiment.is_unsaved and (experiment.settings.at_end or not order.finished):
                experiment.save()
            return self._report(experiment, order)
        reason = experiment.iterate()
        return self._report(experiment, Order(reason, finished=True) if reason else None)

    def _begin(self) -> Experiment:
        beginning: Beginning = self._files.ask("begin")
        signals = StopSignals()  # the driver's count: it lets the trials end

        def make(algorithm: Algorithm) -> Experiment:
            if beginning.state is not None:
                own = copy.deepcopy(beginning.state)  # arrays that Ray brought cannot be written to
                with restoring(beginning.checkpoint or "the checkpoint to start from"):
                    algorithm.set_state(own)
            return Experiment(
                algorithm=algorithm,
                name=self._name,
                folder=beginning.folder,
                stop=beginning.stop,
                settings=beginning.settings,
                store=self._files,
                signals=signals,
                checkpoint=beginning.checkpoint,
                result=beginning.result,
            )

        config = with_output_in(beginning.config.checked(), beginning.folder)
        experiment = begin(self._ending, config, make, signals, [self._files], self._say)
        experiment.start()
        return experiment

    def _say(self, exit_code: int, message: str) -> None:
        self._files.ask("fail", message)

    def _report(self, experiment: Experiment, end: Order | None) -> dict[str, Any]:
        """What Tune and the driver learn of this step."""
        if end is not None:
            end = self._files.end(end)
        result = experiment.result
        found = {
            "done": end is not None,
            "training_iteration": experiment.algorithm.iteration,
            REPORT: StepReport(result, end),
        }
        score = finite(lookup(result, self._metric)) if result and end is None else None
        return found if score is None else found | {SCORE: score}

    def cleanup(self) -> None:
        """End the workers and environments."""
        self._ending.close()


class TrialFiles(Reporter):
    """The folder of one trial, on another node: where its checkpoints go, and its reporter."""

    def __init__(self, name: str, keeper: Any) -> None:
        """`keeper`: the actor that holds the `TrialFolders`."""
        self._name, self._keeper = name, keeper

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the keeper for this trial, and wait for it."""
        return ray.get(getattr(self._keeper, method).remote(self._name, *arguments))

    def save(self, state: State, metadata: dict[str, Any], score: float | None = None) -> Path:
        """Write a checkpoint and return its path there."""
        path: Path = self.ask("save", state, metadata, score)
        return path

    def start(self, run: Run) -> None:
        """The trial begins."""
        # "" and None, as workers cannot be asked from another process
        self.ask("start", replace(run, worker_problem=str, applications=type(None)))

    def report(self, result: Result) -> None:
        """Write a result."""
        self.ask("report", result)

    def end(self, order: Order) -> Order:
        """Say why the trial ends, and return the order that it is to report.

        One that is through waits until an object store has all of it, as no process goes on with it later; when the
        sweep is to end meanwhile, it is one that goes on. Raises `StoreUnavailableError` where waiting is of no use.
        """
        self.ask("finish", order)
        deadline = time.monotonic() + END_S
        while order.finished and (missing := self.ask("missing")) is not None:
            if missing.hopeless or time.monotonic() > deadline:
                raise StoreUnavailableError(missing.text)
            if (asked := self.ask("order")) is not None and not asked.finished:
                return Order(asked.reason, finished=False)
            time.sleep(LOOK_AGAIN_S)
        return order
