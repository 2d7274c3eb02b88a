"""The base class of explorations that leave the choice of actions to another one."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass

import numpy as np

from reef.nn.distributions import ActionDistribution
from reef.rollout.exploration.exploration import Exploration
from reef.types import Array, State


@dataclass
class WithSubExploration(Exploration):
    """Leaves the choice of actions to another exploration, by default the algorithm's own."""

    _: KW_ONLY
    sub_exploration: Exploration | None = None

    @property
    def sub(self) -> Exploration:
        """The exploration that chooses the actions."""
        assert isinstance(self.sub_exploration, Exploration), "made by make_exploration"
        return self.sub_exploration

    @property
    def has_logp(self) -> bool:
        """As in `sub`."""
        return self.sub.has_logp

    def follows_policy(self, timestep: int) -> bool:
        """As `sub` does."""
        return self.sub.follows_policy(timestep)

    @property
    def is_episodic(self) -> bool:
        """As in `sub`."""
        return self.sub.is_episodic

    def begin(self, *, new_episodes: bool) -> None:
        """Tell `sub`."""
        self.sub.begin(new_episodes=new_episodes)

    def end_episodes(self, done: Array) -> None:
        """Tell `sub`."""
        self.sub.end_episodes(done)

    def acts_in(self, columns: Array) -> None:
        """Tell `sub`."""
        self.sub.acts_in(columns)

    def apart(self) -> Exploration:
        """One with another `sub`."""
        one = copy.copy(self)
        one.sub_exploration = self.sub.apart()
        return one

    @property
    def per_worker(self) -> bool:
        """Whether `sub` differs between workers."""
        return bool(getattr(self.sub, "per_worker", False))

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return the actions of `sub`."""
        return self.sub.explore(distribution, timestep, generator)

    def logp(self, distribution: ActionDistribution, actions: Array, timestep: int) -> Array:
        """As `sub` says."""
        return self.sub.logp(distribution, actions, timestep)

    def info(self, timestep: int) -> dict[str, float]:
        """Return the values of `sub`."""
        return self.sub.info(timestep)

    def state(self) -> State:
        """Return the state of `sub`."""
        return {"sub_exploration": self.sub.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.sub.set_state(state.get("sub_exploration", {}))
