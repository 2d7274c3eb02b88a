"""The parameters of a sweep's trials as Optuna proposes them, from the results of the trials that ended before."""

from __future__ import annotations

from collections import deque
from typing import Any

import optuna
import ray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState
from ray.tune.search import Searcher

from reef.api.tune import Parameter
from reef.errors import ConfigError
from reef.sweep.plan import Parameters, Plan, Trial, as_value, is_whole
from reef.sweep.progress import SweepProgress
from reef.tune.trial import SCORE, trial_config

DIRECTIONS = {"max": StudyDirection.MAXIMIZE, "min": StudyDirection.MINIMIZE}


class OptunaSearch(Searcher):
    """Proposes parameters for every trial of the record that waits, by a tree-structured Parzen estimator.

    Proposals follow from the sweep's seed and the order in which trials end. Those of an earlier process are known, and
    trials that it began keep their parameters.
    """

    def __init__(self, plan: Plan, progress: SweepProgress, keeper: Any) -> None:
        super().__init__(metric=SCORE, mode=plan.tune.mode)
        self._plan, self._progress, self._keeper = plan, progress, keeper
        self._waiting = deque(progress.record.in_state("waiting"))
        self._space = {
            key: distribution(parameter, whole=is_whole(plan.base, key))
            for key, parameter in plan.tune.parameters.items()
        }
        known = [trial for trial in progress.record.trials.values() if trial.parameters]
        seed = None if plan.base.seed is None else plan.base.seed + len(known)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            direction=DIRECTIONS[plan.tune.mode], sampler=optuna.samplers.TPESampler(seed=seed)
        )
        self._asked: dict[str, tuple[Trial, optuna.trial.Trial | None]] = {}  # by Tune's id
        for trial in known:
            if trial.state == "finished" and trial.metric is not None:
                self._add(trial, trial.metric)

    def _add(self, trial: Trial, value: float) -> None:
        """Have the study know a trial that it did not propose, or whose proposal an earlier process made."""
        params = {key: self._internal(key, chosen) for key, chosen in trial.parameters.items() if key in self._space}
        if all(self._space[key]._contains(self._space[key].to_internal_repr(one)) for key, one in params.items()):
            space = {key: self._space[key] for key in params}
            self._study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))

    def _internal(self, key: str, value: Any) -> Any:
        values = self._plan.tune.parameters[key].choice
        if values is None:
            return value
        return values.index(value) if value in values else -1

    def suggest(self, trial_id: str) -> Any:
        """The configuration of the next trial; trials whose settings contradict each other have failed."""
        while self._waiting:
            trial, proposal = self._waiting.popleft(), None
            if not trial.parameters:
                proposal = self._study.ask(self._space)
                trial.parameters = self._parameters(proposal)
            try:
                config = self._plan.config(trial).validate()
            except ConfigError as error:
                if proposal is not None:
                    self._study.tell(proposal, state=TrialState.FAIL)
                self._progress.changed(trial.name, "failed", str(error))
                continue
            ray.get(self._keeper.configure.remote(trial.name, config))
            self._asked[trial_id] = trial, proposal
            return {"trial": trial_config(trial.name, config)}
        return Searcher.FINISHED

    def _parameters(self, proposal: optuna.trial.Trial) -> Parameters:
        found: Parameters = {}
        for key, parameter in self._plan.tune.parameters.items():
            value = proposal.params[key]
            if parameter.choice is not None:
                found[key] = parameter.choice[value]
            else:
                found[key] = as_value(value, whole=isinstance(value, int))
        return found

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study how a trial ended; one that goes on later says nothing."""
        trial, proposal = self._asked.pop(trial_id, (None, None))
        if trial is None or trial.state == "waiting":
            return
        failed = trial.state == "failed" or trial.metric is None
        if proposal is None:
            if not failed and trial.metric is not None:
                self._add(trial, trial.metric)
        elif failed:
            self._study.tell(proposal, state=TrialState.FAIL)
        else:
            self._study.tell(proposal, trial.metric)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: what a sweep goes on from is its record."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing, as `save_to_dir`."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, as `save_to_dir`."""


def distribution(parameter: Parameter, *, whole: bool) -> BaseDistribution:
    """What Optuna draws a parameter from; of a choice, the place in the list."""
    if parameter.choice is not None:
        return CategoricalDistribution(range(len(parameter.choice)))
    interval = parameter.uniform or parameter.log_uniform
    assert interval is not None, "a grid was refused"
    low, high = interval
    log = parameter.log_uniform is not None
    return IntDistribution(round(low), round(high), log=log) if whole else FloatDistribution(low, high, log=log)
