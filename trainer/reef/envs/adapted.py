"""Vectorised environments of others, through Gymnasium's vector API."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from reef.callbacks.hooks import guarded
from reef.config import AlgorithmConfig
from reef.envs.curriculum.tasks import storable_of
from reef.envs.failures import failure
from reef.envs.vector import StepResult, VectorEnv
from reef.errors import EnvironmentError
from reef.types import Array, State


class AdaptedVector(VectorEnv):
    """Any `gymnasium.vector.VectorEnv` that resets ended columns itself, within the same step or with the next one.

    The latter ignores the action of the step after an episode's end, which therefore is a dead step. Episodes in
    progress are saved if it has `get_state()` and `set_state(state)`; otherwise every column starts a new one after a
    restore. The first seed decides for all columns.
    """

    def __init__(self, config: AlgorithmConfig, worker_index: int, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        observation_space, action_space = env.single_observation_space, env.single_action_space
        super().__init__(config, worker_index, env.num_envs, observation_space, action_space)
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise EnvironmentError(
                f"environment {self.name!r} has autoreset_mode={mode}: Reef works with NEXT_STEP and SAME_STEP. "
                "Make it reset ended columns itself."
            )
        self.envs = [env]
        self._env: Any = env
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._done = np.zeros(env.num_envs, np.bool_)  # columns whose episode ended with the last step
        self._has_state = all(callable(getattr(env, name, None)) for name in ("get_state", "set_state"))

    def _reset(self) -> None:
        try:
            obs, _ = self._env.reset(seed=self.seeds.next(0))
            self._write(obs)
        except Exception as error:
            raise failure(self.name, "reset", "of all columns", error) from error
        self._done[:] = False

    def step(
        self,
        actions: Array,  # [B, *act], as the policy chose them
    ) -> StepResult:
        """Step every column once; a step is dead where the environment spends it on a reset."""
        try:
            obs, rewards, terminated, truncated, infos = self._env.step(self._env_actions(actions))
            self._write(obs)
            self._rewards[:] = rewards
            self._terminated[:] = terminated
            self._truncated[:] = truncated
        except Exception as error:
            raise failure(self.name, "step", "of all columns", error) from error
        dead = None if self._same_step or not self._done.any() else self._done.copy()
        if dead is not None:
            self._rewards[dead] = 0.0
            self._terminated[dead] = self._truncated[dead] = False
        np.logical_or(self._terminated, self._truncated, out=self._done)
        ended = np.flatnonzero(self._done).tolist()
        return self._result(self._final_obs(ended, infos), None if dead is None else ~dead)

    def _final_obs(self, ended: list[int], infos: dict[str, Any]) -> dict[int, Array]:
        if self._same_step:
            return {column: np.array(self.observation_layout.flatten(infos["final_obs"][column])) for column in ended}
        return {column: self._obs[column].copy() for column in ended}

    def state(self) -> State:
        """The seeds, and the episodes of all columns, if they have begun and the environment gives its state.

        EnvironmentError for a state that a checkpoint cannot hold.
        """
        episodes = []
        if self._has_state and self.seeds.episodes[0]:
            own = storable_of(self.name, "get_state", self._env.get_state)
            episodes = [{"env": own, "obs": self._obs.copy(), "done": self._done.copy()}]
        return {"seeds": self.seeds.state(), "episodes": episodes}

    def _set_state(self, state: State) -> Array:
        """Go on in all columns, or start new episodes, with seeds that follow those of the saved ones."""
        self.seeds.restore(state["seeds"])
        fitting = [one for one in state["episodes"] if self._has_state and one["obs"].shape == self._obs.shape]
        for episodes in fitting:
            guarded(f"reset of environment {self.name!r}", self._env.reset, seed=self.seeds.current(0))
            guarded(f"set_state of environment {self.name!r}", self._env.set_state, episodes["env"])
            self._obs[:], self._done[:] = episodes["obs"], episodes["done"]
        if not fitting:
            self.reset()
        return np.full(self.num_envs, bool(fitting))

    def _env_actions(self, actions: Array) -> Any:
        layout = self.action_layout
        bounded = self.action_transform(actions)
        if not layout.composite:
            return layout.unflatten(bounded)
        values = [layout.unflatten(row) for row in bounded]
        batch: Any = create_empty_array(self.action_space, self.num_envs)
        return concatenate(self.action_space, values, batch)

    def _write(self, obs: Any) -> None:
        layout = self.observation_layout
        if layout.direct:
            if np.shape(obs) != self._obs.shape:  # or it would be broadcast
                raise ValueError(f"obs has the shape {np.shape(obs)}, expected {self._obs.shape}")
            self._obs[:] = obs
        else:
            for column, value in enumerate(iterate(self._env.observation_space, obs)):
                self._obs[column] = layout.flatten(value)


class FirstColumn(gym.Env[Any, Any]):
    """One environment out of a vectorised one, whose columns all get the same actions."""

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.metadata, self.render_mode = env.metadata, env.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, infos = self._env.reset(seed=seed, options=options)
        return self._first(obs), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step all columns; where one resets within the step, its observation is still that of the old episode."""
        count = self._env.num_envs
        batch: Any = create_empty_array(self.action_space, count)
        actions = concatenate(self.action_space, [action] * count, batch)
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        ended = bool(terminated[0] or truncated[0])
        first = infos["final_obs"][0] if ended and "final_obs" in infos else self._first(obs)
        return first, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), infos

    def render(self) -> Any:
        """What the column draws."""
        frames = self._env.render()
        return frames[0] if frames else None

    def close(self) -> None:
        """Close the vectorised environment."""
        self._env.close()

    def _first(self, obs: Any) -> Any:
        return next(iter(iterate(self._env.observation_space, obs)))
