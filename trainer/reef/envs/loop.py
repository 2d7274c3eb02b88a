"""Any Gymnasium environments, stepped one after the other."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.curriculum.tasks import Tasks
from reef.envs.failures import describe, failure
from reef.envs.vector import AgentsStep, EpisodeListener, StepResult, VectorEnv
from reef.envs.wrappers import env_actions
from reef.errors import CallbackError, sentence
from reef.types import ONLY_AGENT, Array, State

logger = logging.getLogger(__name__)
Env = gym.Env[Any, Any]

REPLAY_LIMIT = 100_000  # steps of an episode whose actions are kept for `state`
RESTART_ATTEMPTS = 5  # environments made in a row, without one step that worked, before the job counts as failed


class LoopVectorEnv(VectorEnv):
    """B independent environments; `create(column)` makes one."""

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        num_envs: int,
        create: Callable[[int], Env],
        listener: EpisodeListener | None = None,
    ) -> None:
        self._listener = listener
        self.envs = [create(column) for column in range(num_envs)]
        first: Any = self.envs[0]
        own: list[Any] = [getattr(first, kind, None) for kind in ("observation_space", "action_space")]
        super().__init__(config, worker_index, num_envs, own[0], own[1], first)
        self._tasks = Tasks(self.envs, self.name)
        self._worker_index = worker_index
        self._create = create
        self._restart = config.restart_failed_sub_environments
        self._horizon = config.horizon or sys.maxsize
        self._soft_horizon = config.soft_horizon
        self._no_done_at_end = config.no_done_at_end
        self._failures = [0] * num_envs  # since the last step that worked
        self._lengths = [0] * num_envs  # steps of the episode in progress
        self._history: deque[Array] = deque(maxlen=REPLAY_LIMIT)  # actions [B, *act] of the latest steps
        self._steps = 0  # since the last reset of all columns
        self._begins = [0] * num_envs  # the step at which each column's environment was last reset

    def _reset(self) -> None:
        self._history.clear()
        self._steps = 0
        for column in range(self.num_envs):
            self._begin(column)

    def step(
        self,
        actions: Array,  # [B, *act], as the policy chose them
    ) -> StepResult:
        """Step every column once; EnvironmentError when an environment raises and may not be recreated."""
        self._history.append(actions.copy())
        self._steps += 1
        self._terminated[:] = self._truncated[:] = False
        final_obs: dict[int, Array] = {}
        failed: list[int] = []
        for column, action in enumerate(self._env_actions(actions)):
            self._step_column(column, action, final_obs, failed)
        return self._result(final_obs, self._kill(failed) if failed else None)

    def _step_column(self, column: int, action: Any, final_obs: dict[int, Array], failed: list[int]) -> None:
        """Step one environment; where its episode ends it is in `final_obs`, and in `failed` if it was recreated."""
        self._lengths[column] += 1
        try:
            obs, reward, terminated, truncated, info = self.envs[column].step(action)
            self._rewards[column] = reward
            self._obs[column] = self.observation_layout.checked(obs)
            if terminated is not True and terminated is not False:
                terminated = flag("terminated", terminated)
            if truncated is not True and truncated is not False:
                truncated = flag("truncated", truncated)
        except Exception as error:
            self._fail(column, "step", error)
            failed.append(column)
            final_obs[column] = self._obs[column].copy()  # the last one before the failure
            self._recreate(column)
            return
        self._failures[column] = 0
        cut = self._lengths[column] >= self._horizon
        ended = terminated or truncated or cut
        if self._listener is not None:
            values: tuple[Any, ...] = obs, float(reward), terminated, truncated or cut, info
            by_agent = AgentsStep(*({ONLY_AGENT: each} for each in values))
            self._listener.stepped(column, {ONLY_AGENT: action}, by_agent, ended=ended)
        if not ended:
            return
        self._terminated[column] = terminated and not self._no_done_at_end
        self._truncated[column] = truncated or cut or (terminated and self._no_done_at_end)
        final_obs[column] = self._obs[column].copy()
        if self._soft_horizon and not (terminated or truncated):
            self._lengths[column] = 0  # a new episode in the same, still running, environment
            self._begins_episode(column)
            self._began_episode(column, obs, info)
        else:
            self._begin(column)

    def state(self) -> State:
        """The seeds, and for each column the actions of its episode so far: what leads to the same state again."""
        taken = self._actions_taken()
        columns = [
            {
                "length": self._lengths[column],
                "actions": taken[column],
                "obs": np.array(self._obs[column]),  # also of a Discrete space, whose row is a number
            }
            for column in range(self.num_envs)
        ]
        return {"seeds": self.seeds.state(), "columns": columns, **self._tasks.state()}

    def _actions_taken(self) -> list[Array | None]:
        """For each column the actions [n, *act] since its environment was reset; None: they were too many to keep."""
        shape = (len(self._history), self.num_envs, *self.action_layout.shape)
        actions = np.array(self._history).reshape(shape)
        first = self._steps - len(actions)  # the step whose action is the oldest one kept
        return [
            actions[begin - first :, column].copy() if begin >= first else None
            for column, begin in enumerate(self._begins)
        ]

    def _set_state(self, state: State) -> Array:
        """Re-seed and replay each column's episode; a column that cannot be replayed starts a fresh episode."""
        columns = state["columns"][: self.num_envs]
        self.seeds.restore(state["seeds"])
        resumed = np.zeros(self.num_envs, np.bool_)
        self._keep_actions([self._replay(column, state, resumed) for column in range(len(columns))])
        for column in range(len(columns), self.num_envs):
            self._tasks.restore(column, state)
            self._begin(column)
        return resumed

    def _keep_actions(self, taken: list[Array]) -> None:
        """Replace the actions kept by those, [n, *act] each, that the first columns have taken since their reset."""
        self._history.clear()
        self._steps = max(map(len, taken), default=0)
        action = np.zeros((self._steps, self.num_envs, *self.action_layout.shape), _dtype(taken))
        for column, actions in enumerate(taken):
            self._begins[column] = self._steps - len(actions)
            action[self._begins[column] :, column] = actions
        self._history.extend(action)

    def _replay(self, column: int, state: State, resumed: Array) -> Array:
        """Bring a column to its saved state and say so in `resumed`; return the actions [n, *act] that it took."""
        saved = state["columns"][column]
        actions = saved["actions"]
        if not self.seeds.episodes[column]:  # it was never begun
            self._begin(column)
            return np.empty((0, *self.action_layout.shape))
        self._tasks.restore(column, state, "begun")
        self._tasks.begin(column)
        if actions is None:
            logger.warning(
                "environment %d of %s was more than %d steps into its episode when it was saved: it starts a new one.",
                column, self.name, REPLAY_LIMIT,
            )  # fmt: skip
        else:
            number = self.seeds.episodes[column]
            self.seeds.episodes[column] = number - 1  # it begins once more
            try:
                options = self._begins_episode(column)
                obs, info = self.envs[column].reset(seed=self.seeds.next(column), **options)
                for action in self._env_actions(actions):
                    obs, *_, info = self.envs[column].step(action)
                self._obs[column] = self.observation_layout.checked(obs)
            except CallbackError:
                raise
            except Exception as error:
                logger.warning(
                    "environment %d of %s failed while its episode was replayed: %r", column, self.name, error
                )
            else:
                self._lengths[column] = saved["length"]
                nan_too = saved["obs"].dtype.kind == "f"
                resumed[column] = np.array_equal(self._obs[column], saved["obs"], equal_nan=nan_too)
                if not resumed[column]:
                    logger.warning(
                        "environment %d of %s did not reach its saved observation when its episode was replayed: it "
                        "is not deterministic for a given seed, so the resumed run differs from an uninterrupted one. "
                        "It starts a new episode.",
                        column, self.name,
                    )  # fmt: skip
            self.seeds.episodes[column] = number
        self._tasks.restore(column, state)
        if resumed[column]:
            self._began_episode(column, obs, info)
            return np.asarray(actions)
        self._begin(column)
        return np.empty((0, *self.action_layout.shape))

    def _env_actions(
        self,
        actions: Array,  # [B, *act]
    ) -> list[Any]:
        """The actions as the environments take them; none shares memory with the caller's."""
        return env_actions(actions, self.action_layout, self.action_transform)

    def _begin(self, column: int, *, recreate: bool = False) -> None:
        """Start the next episode of a column, in a new environment with `recreate` or where the present one fails.

        Siblings are not touched.
        """
        begun = True
        try:
            if recreate:
                self.envs[column] = self._tasks.carry_over(column, self._create(column))
            self._tasks.begin(column)
            options = self._begins_episode(column)
            obs, info = self.envs[column].reset(seed=self.seeds.next(column), **options)
            self._obs[column] = self.observation_layout.checked(obs)
        except CallbackError:
            raise
        except Exception as error:
            self._fail(column, "reset", error)
            begun = False
        if not begun:  # outside of the handler, or the next error would be shown with this one
            self._recreate(column)
            return
        self._lengths[column] = 0
        self._forget_actions(column)
        self._began_episode(column, obs, info)

    def _forget_actions(self, column: int) -> None:
        """Drop the actions kept of a column, whose environment was reset."""
        self._begins[column] = self._steps
        oldest = min(self._begins)
        while self._history and self._steps - len(self._history) < oldest:
            self._history.popleft()

    def _begins_episode(self, column: int) -> dict[str, Any]:
        return {} if self._listener is None else self._listener.begins(column)

    def _began_episode(self, column: int, obs: Any, info: Any) -> None:
        if self._listener is not None:
            self._listener.began(column, {ONLY_AGENT: obs}, {ONLY_AGENT: info})

    def _fail(self, column: int, call: str, error: Exception) -> None:
        """Raise EnvironmentError for the failure of one environment, or log it where it may be recreated (again)."""
        self._failures[column] += 1
        step = self._lengths[column]
        where = f"at column {column} of worker {self._worker_index}, step {step} of its episode"
        if not self._restart:
            fix = "Correct the environment, or set restart_failed_sub_environments=True to replace it when it fails."
            raise failure(self.name, call, where, error, fix) from error
        if self._failures[column] > RESTART_ATTEMPTS:
            fix = f"It was made again {RESTART_ATTEMPTS} times and no step of it worked. Correct the environment."
            raise failure(self.name, call, where, error, fix) from error
        logger.warning(
            "%s It is made again; its episode is dropped.", sentence(describe(self.name, call, where, error))
        )

    def _recreate(self, column: int) -> None:
        with suppress(Exception):
            self.envs[column].close()
        self.restarts += 1
        self._begin(column, recreate=True)

    def _kill(self, failed: list[int]) -> Array:
        """Turn the step of failed columns into a dead one; return which columns are live, [B] bool."""
        live = np.ones(self.num_envs, np.bool_)
        live[failed] = False
        self._rewards[failed] = 0.0
        self._terminated[failed] = False
        self._truncated[failed] = True
        return live


def flag(name: str, value: Any) -> bool:
    """The truth of what `step` returned as `name`; TypeError for an array."""
    if getattr(value, "ndim", 0) or isinstance(value, list | tuple):
        raise TypeError(f"{name} is an array of shape {np.shape(value)}, expected True or False: return bool({name})")
    return bool(value)


def _dtype(replays: list[Array]) -> np.dtype[Any]:
    longest = max(replays, key=len, default=np.empty(0))
    return longest.dtype
