"""How a policy explores: from a batch of action distributions to the actions that are taken.

One `Exploration` per policy, made from `exploration_config`: `type` (a name of `EXPLORATIONS`, a path such as
"package.module:Name", or a class) and the arguments of that class. Own classes subclass `Exploration`; their `__init__`
takes the `ActionBox` first and then their arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.errors import ConfigError, nearest
from reef.nn.distributions import ActionDistribution, Categorical
from reef.schedules import Schedule
from reef.spaces import Layout
from reef.types import Array, State

# an action mask sets the logits of forbidden actions below this
INVALID_LOGIT = -1e30


@dataclass(frozen=True, slots=True)
class ActionBox:
    """The actions a policy may return, element by element, and who asks for them."""

    layout: Layout
    low: Array  # [*action] float32
    high: Array  # [*action] float32, itself excluded where whole
    whole: Array  # [*action] bool: an index, not a real number
    worker_index: int = 0
    num_workers: int = 0

    @classmethod
    def of(cls, layout: Layout, *, normalized: bool, worker_index: int = 0, num_workers: int = 0) -> ActionBox:
        """Describe `layout`; `normalized` Box elements reach from -1 to 1, and so do unbounded ones."""
        low, high = np.empty((2, layout.size), np.float32)
        whole = np.empty(layout.size, np.bool_)
        for leaf in layout.leaves:
            part = slice(leaf.offset, leaf.offset + leaf.size)
            low[part], high[part], whole[part] = _bounds(leaf.space, normalized)
        shape = layout.shape
        return cls(layout, low.reshape(shape), high.reshape(shape), whole.reshape(shape), worker_index, num_workers)

    def uniform(self, batch: int, generator: np.random.Generator) -> Array:
        """[batch, *action] uniformly random actions."""
        if isinstance(self.layout.space, spaces.Discrete):
            return generator.integers(int(self.layout.space.n), size=batch)
        values = generator.random((batch, *self.layout.shape), np.float32) * (self.high - self.low) + self.low
        return np.where(self.whole, np.floor(values), values).astype(self.layout.action_dtype)  # type: ignore[no-any-return]

    def require(self, kind: type[spaces.Space[Any]], who: object) -> None:
        """Raise ConfigError unless the action space is of `kind`."""
        if not isinstance(self.layout.space, kind):
            raise ConfigError(
                f"exploration_config.type {type(who).__name__!r} needs a {kind.__name__} action space, but the "
                f"environment's is {self.layout.space}. Use 'StochasticSampling' or 'Random'."
            )


def _bounds(space: spaces.Space[Any], normalized: bool) -> tuple[Any, Any, bool]:
    """Low and high of the flat elements, and whether they are indices."""
    if isinstance(space, spaces.Box):
        bounded = (not normalized) & np.isfinite(space.low) & np.isfinite(space.high)
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        return low.ravel(), high.ravel(), False
    if isinstance(space, spaces.MultiDiscrete):
        return 0, space.nvec.ravel(), True
    return 0, int(space.n) if isinstance(space, spaces.Discrete) else 2, True


@dataclass
class Exploration:
    """Turns distributions into actions; the timestep is that of all environments together."""

    draws_from_policy: ClassVar[bool] = False  # its randomness is what the policy learned, and no noise beside that
    actions: ActionBox

    def get_exploration_action(
        self,
        distribution: ActionDistribution,  # of B rows
        timestep: int,  # environment steps
        explore: bool,
        generator: np.random.Generator,
    ) -> Array:  # [B, *action]
        """Return explored actions, or the deterministic ones when `explore` is False."""
        return self.explore(distribution, timestep, generator) if explore else distribution.deterministic()

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return explored actions [B, *action]."""
        raise NotImplementedError

    def info(self, timestep: int) -> dict[str, float]:
        """What to report in the results, such as the current epsilon."""
        return {}

    def state(self) -> State:
        """What a checkpoint must hold beyond the timestep."""
        return {}

    def set_state(self, state: State) -> None:
        """Take back what `state` returned."""


@dataclass
class StochasticSampling(Exploration):
    """Sample from the distribution, after `random_timesteps` of uniformly random actions."""

    draws_from_policy: ClassVar[bool] = True
    _: KW_ONLY
    random_timesteps: int = 0

    def __post_init__(self) -> None:
        _check("random_timesteps", self.random_timesteps, 0)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return samples, uniform ones at first."""
        if timestep < self.random_timesteps:
            return self.actions.uniform(len(distribution), generator)
        return distribution.sample(generator)


@dataclass
class Random(Exploration):
    """Uniformly random actions."""

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return uniform actions; where actions are masked, uniform over the valid ones."""
        if isinstance(self.actions.layout.space, spaces.Discrete):
            return _uniform_valid(distribution.inputs, generator)
        return self.actions.uniform(len(distribution), generator)


@dataclass
class EpsilonGreedy(Exploration):
    """With probability epsilon a uniformly random valid action, else the best one.

    Epsilon stays at `initial_epsilon` for `warmup_timesteps`, then falls linearly over `epsilon_timesteps`;
    an `epsilon_schedule` [[timestep, value], ...] takes the place of all four. With `per_worker`, worker i of N has the
    constant epsilon 0.4 ** (1 + 7 (i - 1) / (N - 1)) instead (Horgan et al. 2018, section 4.1); the local worker is
    greedy, and without other workers follows the schedule.
    """

    _: KW_ONLY
    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    warmup_timesteps: int = 0
    epsilon_timesteps: int = 100_000
    epsilon_schedule: list[list[float]] | None = None
    per_worker: bool = False

    def __post_init__(self) -> None:
        self.actions.require(spaces.Discrete, self)
        for name in ("initial_epsilon", "final_epsilon"):
            _check(name, getattr(self, name), 0.0, 1.0)
        for name in ("warmup_timesteps", "epsilon_timesteps"):
            _check(name, getattr(self, name), 0)
        ramp = _ramp(self.initial_epsilon, self.final_epsilon, self.warmup_timesteps, self.epsilon_timesteps)
        schedule = Schedule(self.epsilon_schedule or ramp)
        self.epsilon, self.reported = _levels(schedule, self.actions, self.per_worker)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return the best actions, some of them replaced."""
        best = distribution.deterministic()
        chosen = generator.random(len(best)) < self.epsilon(timestep)
        if not chosen.any():  # nearly always, once epsilon is small
            return best
        return np.where(chosen, _uniform_valid(distribution.inputs, generator), best)

    def info(self, timestep: int) -> dict[str, float]:
        """Return the current epsilon; of a local worker that does not sample, the mean of those that do."""
        return {"cur_epsilon": self.reported(timestep)}


@dataclass
class SoftQ(Exploration):
    """Sample actions with probability proportional to exp(Q / temperature)."""

    draws_from_policy: ClassVar[bool] = True
    _: KW_ONLY
    temperature: float = 1.0

    def __post_init__(self) -> None:
        self.actions.require(spaces.Discrete, self)
        _check("temperature", self.temperature, 0.0)
        if self.temperature == 0.0:
            raise ConfigError("exploration_config.temperature is 0; it must be above 0. Near 0 means greedy.")

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return samples of the tempered distribution."""
        return Categorical.draw(distribution.inputs, generator, self.temperature)


@dataclass
class GaussianNoise(Exploration):
    """Deterministic actions plus normal noise, clipped to the bounds, after uniformly random ones.

    The noise has `stddev` times a scale that falls from `initial_scale` to `final_scale` over `scale_timesteps`. With
    `per_worker` each worker has a constant scale, computed as epsilon is in `EpsilonGreedy`.
    """

    _: KW_ONLY
    random_timesteps: int = 1000
    stddev: float = 0.1
    initial_scale: float = 1.0
    final_scale: float = 0.02
    scale_timesteps: int = 10_000
    per_worker: bool = False

    def __post_init__(self) -> None:
        self.actions.require(spaces.Box, self)
        for name in ("random_timesteps", "stddev", "initial_scale", "final_scale", "scale_timesteps"):
            _check(name, getattr(self, name), 0)
        ramp = _ramp(self.initial_scale, self.final_scale, self.random_timesteps, self.scale_timesteps)
        self.scale, self.reported = _levels(Schedule(ramp), self.actions, self.per_worker)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return noisy actions."""
        actions = distribution.deterministic()
        if timestep < self.random_timesteps:
            return self.actions.uniform(len(actions), generator)
        noisy = actions + self.scale(timestep) * self.noise(actions, generator)
        return np.clip(noisy, self.actions.low, self.actions.high)

    def noise(self, actions: Array, generator: np.random.Generator) -> Array:
        """Return noise of the shape of `actions` [B, *action], before scaling."""
        return self.stddev * generator.standard_normal(actions.shape, np.float32)

    def info(self, timestep: int) -> dict[str, float]:
        """Return the current scale; of a local worker that does not sample, the mean of those that do."""
        return {"cur_scale": self.reported(timestep)}


@dataclass
class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Noise that remembers: x += -theta x + sigma N(0, 1), one x per column (Lillicrap et al. 2016, section 7)."""

    _: KW_ONLY
    ou_theta: float = 0.15
    ou_sigma: float = 0.2
    ou_base_scale: float = 0.1
    walk: Array | None = field(default=None, init=False)  # [B, *action]

    def noise(self, actions: Array, generator: np.random.Generator) -> Array:
        """Return the next point of the walk, in units of half the action range."""
        if self.walk is None or self.walk.shape != actions.shape:
            self.walk = np.zeros_like(actions)
        step = self.ou_sigma * generator.standard_normal(actions.shape, np.float32)
        self.walk = (1.0 - self.ou_theta) * self.walk + step
        noise: Array = self.ou_base_scale * self.walk * (self.actions.high - self.actions.low)
        return noise

    def state(self) -> State:
        """Return the walk."""
        return {} if self.walk is None else {"walk": self.walk.copy()}

    def set_state(self, state: State) -> None:
        """Go on from a stored walk."""
        self.walk = np.array(state["walk"]) if "walk" in state else None


EXPLORATIONS: dict[str, type[Exploration]] = {
    kind.__name__: kind
    for kind in (
        StochasticSampling,
        Random,
        EpsilonGreedy,
        SoftQ,
        GaussianNoise,
        OrnsteinUhlenbeckNoise,
    )
}
# RLlib's names of these types with per_worker=True; they take no argument from the algorithm's default
PER_WORKER: dict[str, type[Exploration]] = {
    f"PerWorker{kind.__name__}": kind for kind in (EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeckNoise)
}


def make_exploration(
    config: AlgorithmConfig,
    action_layout: Layout,
    worker_index: int = 0,
) -> Exploration:
    """Make the exploration of one policy on one worker; ConfigError names a wrong type or argument."""
    given, usual = config.exploration_config, config.declared["exploration_config"].fresh()
    kind = given.get("type", usual["type"])
    make = _constructor(kind)
    if kind in PER_WORKER:
        arguments = {**given, "per_worker": True}
    else:
        arguments = {**(usual if make is _constructor(usual["type"]) else {}), **given}
    arguments.pop("type", None)
    known = list(inspect.signature(make).parameters)[1:]
    for name in arguments:
        if name not in known:
            raise ConfigError(
                f"exploration_config.{name}={arguments[name]!r} is no argument of {make.__name__}, which takes: "
                f"{', '.join(known) or 'none'}.{nearest(name, known)}"
            )
    box = ActionBox.of(
        action_layout,
        normalized=config.normalize_actions,
        worker_index=worker_index,
        num_workers=config.num_rollout_workers,
    )
    return make(box, **arguments)


def _constructor(kind: Any) -> Callable[..., Exploration]:
    if isinstance(kind, str) and ("." in kind or ":" in kind):
        path = kind if ":" in kind else ":".join(kind.rsplit(".", 1))
        kind = load(path, what="exploration_config.type")
    if isinstance(kind, str):
        named = EXPLORATIONS | PER_WORKER
        if kind not in named:
            raise ConfigError(
                f"exploration_config.type={kind!r} is unknown. Use one of {', '.join(named)}, or a path "
                f"'package.module:Name'.{nearest(kind, named)}"
            )
        return named[kind]
    if not (isinstance(kind, type) and issubclass(kind, Exploration)):
        raise ConfigError(f"exploration_config.type={kind!r} must be a name or a subclass of Exploration.")
    return kind


def _check(name: str, value: Any, low: float, high: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limits = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise ConfigError(f"exploration_config.{name}={value!r} must be a number, {limits}.")


def _ramp(initial: float, final: float, warmup: int, length: int) -> list[list[float]]:
    """`initial` for `warmup` timesteps, then over `length` timesteps to `final`; without `length` at once."""
    last = warmup if length else warmup - 1  # timestep with the initial value
    return [[step, initial] for step in sorted({0, last}) if 0 <= step <= last] + [[warmup + length, final]]


def _levels(schedule: Schedule, actions: ActionBox, per_worker: bool) -> tuple[Schedule, Schedule]:
    """How strongly to explore, and what to report of it."""
    if not isinstance(per_worker, bool):
        raise ConfigError(f"exploration_config.per_worker={per_worker!r} must be true or false.")
    if not (per_worker and actions.num_workers):
        return schedule, schedule

    def constant(worker_index: int) -> float:
        return float(0.4 ** (1.0 + 7.0 * (worker_index - 1) / max(actions.num_workers - 1, 1)))

    if actions.worker_index > 0:
        own = Schedule(constant(actions.worker_index))
        return own, own
    return Schedule(0.0), Schedule(sum(map(constant, range(1, actions.num_workers + 1))) / actions.num_workers)


def _uniform_valid(logits: Array, generator: np.random.Generator) -> Array:
    """[B] random columns of `logits` [B, n], those below INVALID_LOGIT excluded."""
    scores = generator.random(logits.shape)
    return np.where(logits < INVALID_LOGIT, -1.0, scores).argmax(-1)  # type: ignore[no-any-return]
