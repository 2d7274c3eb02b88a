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
        self._generator = np.random.default_rng(0)  # seeded by reset
        self._state = np.zeros((4, num_envs))  # position, velocity, angle, angular velocity
        self._change = np.zeros((4, num_envs))  # the state's derivative
        self._scratch = np.zeros((5, num_envs))
        self._outside = np.zeros((2, num_envs), np.bool_)
        self._steps = np.zeros(num_envs, np.int64)
        self._done = np.zeros(num_envs, np.bool_)
        self._rewards[:] = 1.0

    def _reset(self) -> None:
        _, *others = self._seeds.roots
        self._generator = np.random.default_rng([self._seeds.next(0), *others])
        self._begin(np.arange(self.num_envs))

    def _begin(self, columns: Array) -> None:
        start = self._generator.uniform(-START_BOUND, START_BOUND, (len(columns), 4))
        self._state[:, columns] = start.T
        self._steps[columns] = 0
        self._obs[columns] = start

    def step(
        self,
        actions: Array,  # [B] 0 or 1
    ) -> StepResult:
        """Step every column once."""
        self._move(actions)
        self._steps += 1
        np.abs(self._state[::2], out=self._scratch[:2])
        np.greater(self._scratch[0], self._env.x_threshold, out=self._outside[0])
        np.greater(self._scratch[1], self._env.theta_threshold_radians, out=self._outside[1])
        np.logical_or(self._outside[0], self._outside[1], out=self._terminated)
        np.greater_equal(self._steps, self._env.max_episode_steps, out=self._truncated)
        np.logical_or(self._terminated, self._truncated, out=self._done)
        self._obs[:] = self._state.T
        if not self._done.any():
            return self._result({})
        ended = np.flatnonzero(self._done)
        final_obs = dict(zip(ended.tolist(), self._obs[ended], strict=True))
        self._begin(ended)
        return self._result(final_obs)

    def _move(
        self,
        actions: Array,  # [B] 0 or 1
    ) -> None:
        """One Euler step of the cart and pole (https://coneural.org/florian/papers/05_cart_pole.pdf, eq. 23 and 24).

        The constants are read from Gymnasium's object in each step, so that `foreach_env` may change them.
        """
        env, change = self._env, self._change
        angle, spin = self._state[2], self._state[3]
        acceleration, spin_up = change[1], change[3]
        sine, cosine, push, swing, inertia = self._scratch
        lever = env.polemass_length / env.total_mass
        np.sin(angle, out=sine)
        np.cos(angle, out=cosine)
        np.multiply(actions, 2 * env.force_mag / env.total_mass, out=push)
        push -= env.force_mag / env.total_mass
        np.multiply(spin, spin, out=swing)
        swing *= sine
        swing *= lever
        push += swing
        np.multiply(cosine, cosine, out=inertia)
        inertia *= -env.length * env.masspole / env.total_mass
        inertia += env.length * 4 / 3
        np.multiply(sine, env.gravity, out=spin_up)
        np.multiply(cosine, push, out=swing)
        spin_up -= swing
        spin_up /= inertia
        np.multiply(spin_up, cosine, out=acceleration)
        acceleration *= -lever
        acceleration += push
        change[::2] = self._state[1::2]
        change *= env.tau
        self._state += change

    def state(self) -> State:
        """The physical states, step counts and the generator, as arrays and numbers."""
        return {
            "state": self._state.copy(),
            "steps": self._steps.copy(),
            "seeds": self._seeds.state(),
            "generator": self._generator.bit_generator.state,
        }

    def set_state(self, state: State) -> Array:
        """Go on with the columns of `state` as far as there are columns; further ones begin episodes."""
        count = min(self.num_envs, len(state["steps"]))
        self._seeds.restore(state["seeds"])
        self._generator.bit_generator.state = state["generator"]
        self._begin(np.arange(count, self.num_envs))
        self._state[:, :count] = state["state"][:, :count]
        self._steps[:count] = state["steps"][:count]
        self._obs[:] = self._state.T
        return self._obs
