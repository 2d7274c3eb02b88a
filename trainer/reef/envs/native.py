"""Vectorised environments: one object that steps all columns in arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from reef.envs.vector import StepResult, VectorEnv
from reef.types import Array, State

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig

START_BOUND = 0.05  # every number of CartPole's first state lies within +- this


class CartPoleVector(VectorEnv):
    """Gymnasium's vectorised CartPole, whose ended columns start their next episode within the same step.

    All columns draw their first states from one generator, seeded by the columns' seeds.
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        num_envs: int,
        *,
        max_episode_steps: int,
    ) -> None:
        env = CartPoleVectorEnv(num_envs, max_episode_steps)
        super().__init__(config, worker_index, num_envs, env.single_observation_space, env.single_action_space)
        self._env = env
        self.envs = [env]

    def _reset(self) -> None:
        env = self._env
        env.reset()
        env.np_random = np.random.default_rng(self._seeds.roots)
        self._begin(np.arange(self.num_envs))

    def _begin(self, columns: Array) -> None:
        env = self._env
        env.state[:, columns] = env.np_random.uniform(-START_BOUND, START_BOUND, (len(columns), 4)).T
        env.steps[columns] = 0
        env.prev_done[columns] = False
        self._obs[columns] = env.state[:, columns].T

    def step(
        self,
        actions: Array,  # [B] 0 or 1
    ) -> StepResult:
        """Step every column once."""
        env = self._env
        obs, self._rewards, self._terminated, self._truncated, _ = env.step(actions)
        self._obs = obs
        ended = np.flatnonzero(env.prev_done)
        if len(ended) == 0:
            return self._result({})
        final_obs = dict(zip(ended.tolist(), obs[ended], strict=True))
        self._begin(ended)
        return self._result(final_obs)

    def state(self) -> State:
        """The physical states, step counts and the generator, as arrays and numbers."""
        env = self._env
        return {"state": env.state.copy(), "steps": env.steps.copy(), "generator": env.np_random.bit_generator.state}

    def set_state(self, state: State) -> Array:
        """Go on with the columns of `state` as far as there are columns; further ones begin episodes."""
        self._reset()
        env = self._env
        env.np_random.bit_generator.state = state["generator"]
        count = min(self.num_envs, len(state["steps"]))
        env.state[:, :count] = state["state"][:, :count]
        env.steps[:count] = state["steps"][:count]
        self._obs[:] = env.state.T
        return self._obs
