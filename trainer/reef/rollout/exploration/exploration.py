"""The base class of explorations, and the one that samples from the policy's distribution."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from reef.nn.distributions import ActionDistribution
from reef.rollout.exploration.action_box import ActionBox
from reef.rollout.exploration.arguments import check
from reef.types import Array, State


@dataclass
class Exploration:
    """Turns distributions into actions, by `explore`; the timestep counts the steps of all environments together."""

    actions: ActionBox

    @property
    def has_logp(self) -> bool:
        """Whether `logp` is known."""
        return False

    def follows_policy(self, timestep: int) -> bool:
        """Whether it draws by the policy's distribution itself; where it does at timestep 0, it always does."""
        return False

    @property
    def is_episodic(self) -> bool:
        """Whether it has noise that goes on from step to step, so that it is told of fragments and ends of episodes."""
        return False

    def begin(self, *, new_episodes: bool) -> None:
        """A fragment begins, perhaps with other weights; `new_episodes`: in all columns."""

    def end_episodes(self, done: Array) -> None:
        """The episodes of the columns where `done` [B] is True have ended."""

    def acts_in(self, columns: Array) -> None:
        """Only these `columns` [B] bool take a step with the next actions; without this call all do."""

    def apart(self) -> Exploration:
        """One for actions that belong to no column: they change nothing of this one."""
        return self

    def get_exploration_action(
        self,
        action_distribution: ActionDistribution,  # of B rows
        timestep: int,  # environment steps
        explore: bool = True,
        generator: np.random.Generator | None = None,
    ) -> tuple[Array, Array]:  # [B, *action] and [B]
        """Return actions and their log-likelihood by the distribution, 0 for one that is a single action.

        Workers call `choose`: they compute the log-likelihoods of a whole fragment at once.
        """
        actions = self.choose(action_distribution, timestep, explore, generator or np.random.default_rng())
        return actions, action_distribution.logp(actions)

    def choose(
        self, distribution: ActionDistribution, timestep: int, explore: bool, generator: np.random.Generator
    ) -> Array:
        """Return explored actions [B, *action], or the deterministic ones when `explore` is False."""
        return self.explore(distribution, timestep, generator) if explore else distribution.deterministic()

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return explored actions [B, *action]."""
        raise NotImplementedError

    def logp(self, distribution: ActionDistribution, actions: Array, timestep: int) -> Array:
        """[B] log-likelihoods with which `explore` returned actions [B, *action]."""
        raise NotImplementedError

    def info(self, timestep: int) -> dict[str, float]:
        """Values to report in the results, such as the current epsilon."""
        return {}

    def state(self) -> State:
        """State for checkpoints besides the timestep."""
        return {}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""


@dataclass
class StochasticSampling(Exploration):
    """Sample from the distribution, after `random_timesteps` of uniformly random actions."""

    _: KW_ONLY
    random_timesteps: int = 0

    @property
    def has_logp(self) -> bool:
        """Yes."""
        return True

    def follows_policy(self, timestep: int) -> bool:
        """After the random actions."""
        return timestep >= self.random_timesteps

    def __post_init__(self) -> None:
        check("random_timesteps", self.random_timesteps, 0)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return samples; uniformly random actions at the start."""
        if timestep < self.random_timesteps:
            return self.actions.uniform(distribution, generator)
        return distribution.sample(generator)

    def logp(self, distribution: ActionDistribution, actions: Array, timestep: int) -> Array:
        """[B] by the distribution, or uniform."""
        random = timestep < self.random_timesteps
        return self.actions.uniform_logp(distribution) if random else distribution.logp(actions)
