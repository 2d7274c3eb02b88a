"""Vectorised environments: one object that steps all columns in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from reef.config import AlgorithmConfig
from reef.envs.vector import StepResult, VectorEnv
from reef.spaces import Space
from reef.types import Array, State

START_BOUND = 0.05  # every number of CartPole's first state lies within +- this


class CartPoleVector(VectorEnv):
    """Gymnasium's vectorised CartPole, whose ended columns start their next episode within the same step.

    All columns draw their first states from one generator, seeded by the columns' seeds.
    """

    def __init__(self, config: AlgorithmConfig, worker_index: int, num_envs: int, *, max_episode_steps: int) -> None:
        env = CartPoleVectorEnv(num_envs, max_episode_steps)
        observation_space, action_space = env.single_observation_space, env.single_action_space
        super().__init__(config, worker_index, num_envs, observation_space, action_space)
        env.reset()  # makes its arrays; what is in them is always drawn by `_begin`
        self._env: Any = env
        self.envs = [env]
        self._generator = np.random.default_rng(0)  # seeded by reset

    @staticmethod
    def has_spaces(*given: Space | None) -> bool:
        """Whether spaces of observations and actions that were given, if they were, are CartPole's."""
        env = CartPoleVectorEnv(1)
        own = env.single_observation_space, env.single_action_space
        return all(space in (None, mine) for space, mine in zip(given, own, strict=True))

    def _reset(self) -> None:
        _, *others = self.seeds.roots
        self._generator = np.random.default_rng([self.seeds.next(0), *others])
        self._begin(np.arange(self.num_envs))

    def _begin(self, columns: Array) -> None:
        start = self._generator.uniform(-START_BOUND, START_BOUND, (len(columns), 4))
        self._env.state[:, columns] = start.T
        self._env.steps[columns] = 0
        self._env.prev_done[:] = False  # or Gymnasium would reset them once more, with the next step
        self._obs[columns] = start

    def step(
        self,
        actions: Array,  # [B] 0 or 1
    ) -> StepResult:
        """Step every column once."""
        self._obs, self._rewards, self._terminated, self._truncated, _ = self._env.step(actions)
        done = self._terminated | self._truncated
        if not np.count_nonzero(done):
            return self._result({})
        ended = np.flatnonzero(done)
        final_obs = dict(zip(ended.tolist(), self._obs[ended], strict=True))
        self._begin(ended)
        return self._result(final_obs)

    def state(self) -> State:
        """The physical states, step counts and the generator, as arrays and numbers."""
        return {
            "state": self._env.state.copy(),
            "steps": self._env.steps.copy(),
            "seeds": self.seeds.state(),
            "generator": self._generator.bit_generator.state,
        }

    def _set_state(self, state: State) -> Array:
        """Go on with the columns of `state` as far as there are columns; further ones begin episodes."""
        count = min(self.num_envs, len(state["steps"]))
        self.seeds.restore(state["seeds"])
        self._generator.bit_generator.state = state["generator"]
        self._begin(np.arange(count, self.num_envs))
        self._env.state[:, :count] = state["state"][:, :count]
        self._env.steps[:count] = state["steps"][:count]
        self._obs[:] = self._env.state.T
        return np.arange(self.num_envs) < count
