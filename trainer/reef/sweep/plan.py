"""Which trials a sweep has: drawn once from the document, and everything that is wrong with it said at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field

from reef.api.keys import stop_key_problem
from reef.api.tune import Parameter, Tune
from reef.config import AlgorithmConfig
from reef.config.aliases import MOVED, RENAMED
from reef.config.settings import Settings
from reef.errors import ConfigError
from reef.run.stopping import absence

MOST_TRIALS = 1000
TRIAL_NAME = "^trial_[0-9]{4,}$"  # it names a folder
SHOWN_PROBLEMS = 10  # of trials whose settings contradict each other
WHERE = "spec.tune"
OF_THE_NETWORK = {
    "model",
    "policy_model_config",
    "q_model_config",
    "hiddens",
    "num_atoms",
    "noisy",
    "dueling",
    "optimizer",
    "replay_buffer_config",
    "learner_class",
    "env_to_module_connector",
}
WORKERS = {"num_rollout_workers", "evaluation_num_workers"}

State = Literal["waiting", "running", "finished", "failed"]
Number = Annotated[int, Field(ge=0, lt=2**63)]
Parameters = dict[str, Any]  # dotted key of a setting to its value in one trial


@dataclass(slots=True)
class Trial:
    """One trial and how far it is."""

    name: Annotated[str, Field(pattern=TRIAL_NAME)]
    parameters: Parameters
    repetition: Number  # from 0: which of `numSamples`
    state: State = "waiting"
    reason: str = ""  # why it ended
    iteration: Number = 0
    timesteps: Number = 0
    metric: float | None = None  # of the newest iteration
    checkpoint: str | None = None  # the newest

    @property
    def drawn(self) -> tuple[str, Parameters, int]:
        """What is the trial's own from the beginning."""
        return self.name, self.parameters, self.repetition


class Plan:
    """The trials of a sweep over the settings `base`.

    A parameter takes the place of what spec.config says of the same setting. The draws follow from the setting `seed`;
    repetition k trains with seed + k, so that it is no copy of the others, and trials of one repetition share theirs.
    """

    def __init__(self, tune: Tune, base: AlgorithmConfig, stop: Mapping[str, float]) -> None:
        """Raises ConfigError with every problem: key, value and fix."""
        self.tune, self.base = tune, base
        problems = [*plan_problems(tune, base, stop)]
        if not problems:
            self.trials = draw(tune, base)
            problems = list(dict.fromkeys(self._contradictions()))[:SHOWN_PROBLEMS]
        if problems:
            raise ConfigError("\n".join(problems))

    @property
    def is_drawn_at_once(self) -> bool:
        """Whether the parameters of all trials are known before the first one starts, and stay."""
        return self.tune.search == "random" and self.tune.scheduler.kind != "pbt"

    def config(self, trial: Trial) -> AlgorithmConfig:
        """All settings of a trial."""
        return self.config_with(trial, trial.parameters)

    def config_with(self, trial: Trial, parameters: Parameters) -> AlgorithmConfig:
        """All settings of a trial that has these parameters from now on."""
        config = self.base.copy()
        if config.seed is not None:
            config.seed += trial.repetition
        for key, value in parameters.items():
            config.set_path(key, value)
        return config

    def _contradictions(self) -> Iterator[str]:
        for trial in self.trials:
            try:
                self.config(trial).validate()
            except ConfigError as error:
                yield f"{WHERE}.parameters, with {described(trial.parameters)}: {error}"


def described(parameters: Mapping[str, Any]) -> str:
    """Parameters for people: "lr=0.001, gamma=0.9"."""
    return ", ".join(f"{key}={value}" for key, value in parameters.items())


def count_of(tune: Tune) -> int:
    """The number of trials."""
    return tune.num_samples * math.prod(len(parameter.grid or [0]) for parameter in tune.parameters.values())


def plan_problems(tune: Tune, base: AlgorithmConfig, stop: Mapping[str, float]) -> Iterator[str]:
    """Say what is wrong with a sweep, apart from settings that contradict each other."""
    count = count_of(tune)
    if count > MOST_TRIALS:
        yield (
            f"{WHERE}: the grid and numSamples={tune.num_samples} make {count} trials, at most {MOST_TRIALS} are "
            "possible. Draw from `choice` in place of a `grid`, or lower numSamples."
        )
    if problem := stop_key_problem(tune.metric) or absence(tune.metric, base):
        yield f"{WHERE}.metric: {tune.metric!r} {problem}"
    yield from (f"{WHERE}.scheduler.{problem}" for problem in scheduler_problems(tune, base, stop))
    if tune.search == "optuna":
        yield from (f"{WHERE}.{problem}" for problem in proposal_problems(tune, base))
    for key, parameter in tune.parameters.items():
        yield from (f"{WHERE}.parameters.{problem}" for problem in parameter_problems(key, parameter, base))


def proposal_problems(tune: Tune, base: AlgorithmConfig) -> Iterator[str]:
    """Say why optuna cannot propose parameters of this sweep."""
    if find_spec("optuna") is None:
        yield "search=optuna: the package is not installed. Install reef[optuna], or add it to the image."
    for key, parameter in tune.parameters.items():
        if parameter.grid is not None:
            yield f"parameters.{key}: search optuna chooses values by itself. Give `choice` in place of `grid`."
        root = setting_of(key)
        if root in WORKERS or base.groups.get(root) == "resources":
            yield f"parameters.{key}: with search optuna all trials reserve the same. Leave it out, or use random."


def setting_of(key: str) -> str:
    """The setting that a parameter is in, by its present name."""
    root = MOVED.get(key, key).split(".")[0]
    return RENAMED.get(root, root)


def scheduler_problems(tune: Tune, base: AlgorithmConfig, stop: Mapping[str, float]) -> Iterator[str]:
    """Say why a scheduler would do nothing in this sweep, or cannot."""
    scheduler, last = tune.scheduler, stop.get("training_iteration", math.inf)
    kind = scheduler.kind
    if kind == "pbt":
        yield from population_problems(tune, base, last)
    elif kind != "fifo" and scheduler.grace_period >= last:
        yield (
            f"gracePeriod={scheduler.grace_period}: every trial ends by stop.training_iteration={last:g} before {kind} "
            "could end it. Give a smaller one."
        )


def population_problems(tune: Tune, base: AlgorithmConfig, last: float) -> Iterator[str]:
    """As `scheduler_problems`, of pbt; `last`: the iteration in which trials end."""
    interval, count = tune.scheduler.perturbation_interval, count_of(tune)
    if interval >= last:
        yield (
            f"perturbationInterval={interval}: every trial ends by stop.training_iteration={last:g} before it could go "
            "on from another. Give a smaller one."
        )
    if count < 2:
        yield "kind=pbt: there is one trial, which has no other to go on from. Raise numSamples."
    if tune.max_concurrent_trials is not None and tune.max_concurrent_trials < count:
        yield (
            f"kind=pbt: all {count} trials run at the same time. Leave out maxConcurrentTrials="
            f"{tune.max_concurrent_trials}, or lower numSamples."
        )
    if tune.search != "random":
        yield f"kind=pbt: it changes the settings of trials itself. Leave out search={tune.search}."
    for key in tune.parameters:
        root = setting_of(key)
        if root in base.groups and (base.groups[root] != "training" or root in OF_THE_NETWORK):
            yield f"kind=pbt: {key} cannot change in a trial that goes on. Leave it out of the parameters."


def parameter_problems(key: str, parameter: Parameter, base: AlgorithmConfig) -> Iterator[str]:
    """Say which values of a parameter are wrong by themselves, or that there is no such setting."""
    if key == "env":
        yield "env: the environment is the job's. Start one job for each."
        return
    if (inside := key.removeprefix("spec.").removeprefix("config.")) != key:
        yield f"{key}: keys begin inside spec.config. Write {inside!r}."
        return
    for value in parameter.grid or parameter.choice or parameter.uniform or parameter.log_uniform or []:
        config = base.copy()
        try:
            config.set_path(key, value)
        except ConfigError as error:
            yield str(error)
            return
        yield from config.wrong_values()


def draw(tune: Tune, base: AlgorithmConfig) -> list[Trial]:
    """Every combination of the grids, `numSamples` times, each with draws of its own for the other parameters.

    Another search chooses the parameters when a trial starts.
    """
    if tune.search != "random":
        return [Trial(f"trial_{index + 1:04d}", {}, index) for index in range(tune.num_samples)]
    generator = np.random.default_rng(base.seed)
    grids = {key: parameter.grid for key, parameter in tune.parameters.items() if parameter.grid is not None}
    whole = {key for key in tune.parameters if is_whole(base, key)}
    trials: list[Trial] = []
    for repetition in range(tune.num_samples):
        for values in itertools.product(*grids.values()):
            chosen = dict(zip(grids, values, strict=True))
            parameters = {
                key: chosen[key] if key in grids else drawn(parameter, generator, whole=key in whole)
                for key, parameter in tune.parameters.items()
            }
            trials.append(Trial(f"trial_{len(trials) + 1:04d}", parameters, repetition))
    return trials


def drawn(parameter: Parameter, generator: np.random.Generator, *, whole: bool) -> Any:
    """One value at random."""
    if values := parameter.choice or parameter.grid:
        return values[generator.integers(len(values))]
    if parameter.log_uniform is not None:
        low, high = parameter.log_uniform
        value = math.exp(generator.uniform(math.log(low), math.log(high)))
    else:
        assert parameter.uniform is not None, "the document's model allows one of four kinds"
        low, high = parameter.uniform
        if whole:
            return int(generator.integers(int(low), int(high), endpoint=True))
        value = generator.uniform(low, high)
    return as_value(value, whole=whole)


def as_value(number: float, *, whole: bool) -> float:
    """A number as trials have it: a whole one, or one of six digits, so that people can read and repeat it."""
    return round(number) if whole else float(f"{number:.6g}")


def is_whole(base: AlgorithmConfig, key: str) -> bool:
    """Whether a setting, by its dotted key, takes whole numbers only."""
    holder: Any = base
    kind: Any = None
    for name in MOVED.get(key, key).split("."):
        item = holder.by_key.get(RENAMED.get(name, name)) if isinstance(holder, Settings) else None
        if item is None:
            return False
        kind, holder = item.type, getattr(holder, item.name)
    kinds = get_args(kind) or (kind,)
    return int in kinds and float not in kinds
