"""Which trials of a sweep end early, or go on from others: Ray Tune's schedulers, which leave the end to the trial.

A trial that ends itself writes its checkpoint first. In a resumed sweep the schedulers know what the trials did before.
"""

from __future__ import annotations

import logging
from typing import Any

import ray
from ray.exceptions import RayTaskError
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from reef.run.reporters.files import read_results
from reef.run.stopping import lookup
from reef.sweep.folders import Order
from reef.sweep.plan import Plan
from reef.sweep.population import exchange
from reef.sweep.progress import SweepProgress
from reef.sweep.record import Record, finite
from reef.tune.trial import REPORT, SCORE, name_of

log = logging.getLogger(__name__)
ENDLESS = 1_000_000_000  # iterations: rungs go on for as long as spec.stop lets trials run


def scheduler_of(plan: Plan, progress: SweepProgress, keeper: Any) -> TrialScheduler:
    """The scheduler that `spec.tune.scheduler` names; `keeper` has the trials' files."""
    kind = plan.tune.scheduler.kind
    if kind == "fifo":
        return FIFOScheduler()  # type: ignore[no-untyped-call]
    if kind == "pbt":
        return Population(plan, progress, keeper)
    ending: type[Ending] = {"asha": Asha, "hyperBand": HyperBand, "medianStopping": MedianStopping}[kind]
    return ending(plan, progress.record, keeper)


class EndedTrial:
    """Takes the place of a trial of Tune for one that ended before this process began."""

    def __init__(self, name: str) -> None:
        self.trial_id, self.config = name, {"trial": {"name": name}}


class Ending(TrialScheduler):
    """Comes before one of Ray's schedulers, and turns its STOP into an order to the trial.

    Such a scheduler compares results by `SCORE` and counts iterations.
    """

    def __init__(self, plan: Plan, record: Record, keeper: Any, **options: Any) -> None:
        grace_period = plan.tune.scheduler.grace_period
        kind: Any = super()
        kind.__init__(metric=SCORE, mode=plan.tune.mode, grace_period=grace_period, **options)
        self._kind, self._record, self._keeper = plan.tune.scheduler.kind, record, keeper
        for trial in record.in_state("finished"):
            self.on_trial_add(None, EndedTrial(trial.name))

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Take in a trial, with the results that it has already."""
        super().on_trial_add(tune_controller, trial)
        for result in read_results(self._record.folder / name_of(trial)):
            if (score := finite(lookup(result, self._record.metric))) is not None:
                self.take_in(trial, {"training_iteration": result["training_iteration"], SCORE: score})

    def take_in(self, trial: Any, result: dict[str, Any]) -> None:
        """Take in an earlier result."""
        super().on_trial_result(None, trial, result)  # type: ignore[arg-type] # Ray's schedulers do not ask it

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compare a new result with those of the other trials."""
        if super().on_trial_result(tune_controller, trial, result) == TrialScheduler.STOP:
            reason = f"{self._kind}: weaker than others at iteration {result['training_iteration']}"
            ray.get(self._keeper.end.remote(name_of(trial), Order(reason, finished=True)))
        return TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """The report of a trial that ends has no score: the one before it had."""


class Asha(Ending, ASHAScheduler):
    """Asynchronous successive halving (Li et al. 2020)."""

    def __init__(self, plan: Plan, record: Record, keeper: Any, **options: Any) -> None:
        factor = plan.tune.scheduler.reduction_factor
        super().__init__(plan, record, keeper, max_t=ENDLESS, reduction_factor=factor, **options)


class HyperBand(Asha):
    """Asynchronous HyperBand (Li et al. 2020): successive halving, whose grace periods trials take in turn."""

    def __init__(self, plan: Plan, record: Record, keeper: Any) -> None:
        super().__init__(plan, record, keeper, brackets=plan.tune.scheduler.brackets)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Choose by the trial's number, so that a resumed sweep chooses the same."""
        bracket = self._brackets[(int(name_of(trial).split("_")[1]) - 1) % len(self._brackets)]
        every, self._brackets = self._brackets, [bracket]  # Ray's scheduler draws one of these
        super().on_trial_add(tune_controller, trial)
        self._brackets = every


class MedianStopping(Ending, MedianStoppingRule):
    """The median stopping rule (Golovin et al. 2017): a trial ends if its best result is below the median."""

    def __init__(self, plan: Plan, record: Record, keeper: Any) -> None:
        samples = plan.tune.scheduler.min_samples
        super().__init__(plan, record, keeper, time_attr="training_iteration", min_samples_required=samples)

    def take_in(self, trial: Any, result: dict[str, Any]) -> None:
        """A trial that goes on is compared at its next result."""
        self._results[trial].append(result)


class Population(FIFOScheduler):
    """Has weak trials go on from strong ones, see `reef.sweep.population`."""

    def __init__(self, plan: Plan, progress: SweepProgress, keeper: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plan, self._progress, self._keeper = plan, progress, keeper

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Change the trial at each perturbation interval, if it is weak; it begins again before its next iteration."""
        name, report = name_of(trial), result[REPORT]
        if report.result is not None and report.end is None:
            self._progress.record.take(name, report.result)
            self._change(name)
        return TrialScheduler.CONTINUE

    def _change(self, name: str) -> None:
        record = self._progress.record
        change = exchange(self._plan, record, name)
        if change is None:
            return
        config = self._plan.config_with(record.trials[name], change.parameters)
        try:
            ray.get(self._keeper.exchange.remote(name, change.source, config))
        except RayTaskError as error:
            log.warning("%s goes on as it is, and not from %s: %s", name, change.source, error.cause)
            return
        self._progress.exchanged(name, change)
