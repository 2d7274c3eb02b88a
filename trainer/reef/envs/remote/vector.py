"""Environments in processes of their own, stepped as their answers come."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.loop import REPLAY_LIMIT, LoopVectorEnv
from reef.envs.remote.env import RemoteEnv, ask_to_close
from reef.envs.remote.processes import EnvProcesses
from reef.envs.vector import StepResult
from reef.envs.wrappers import RewardTransform
from reef.types import Array


class RemoteVectorEnv(LoopVectorEnv):
    """B environments with a process each. A step is one of those that have answered; `live` says which these are.

    It waits for the first answer, and up to `remote_env_batch_wait_ms` for the others. An action is for the columns
    that are `present`: those that have answered. With the step that ends an episode its process begins the next one.
    """

    envs: list[RemoteEnv]
    present: Array

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        num_envs: int,
        processes: EnvProcesses,
    ) -> None:
        """EnvironmentError or ConfigError as of a single environment."""
        self._processes, listener = processes, processes.listener
        self._selector = selectors.DefaultSelector()
        self._descriptors: dict[int, int] = {}  # by column

        def create(column: int) -> Any:
            env = processes(column)
            self._listen_to(column, env)
            return env

        super().__init__(config, worker_index, num_envs, create, listener)
        first, *_ = [env.process.begun for env in self.envs]
        self.reward_transform = RewardTransform(config.clip_rewards, atari=first.is_atari)
        self._marks_lives = not config.no_done_at_end
        self._wait_s = config.remote_env_batch_wait_ms / 1000
        self.present = np.ones(num_envs, np.bool_)
        self._asked = np.zeros(num_envs, np.bool_)  # columns that step now
        self._env_action = [None] * num_envs  # the newest of each column, as its environment gets it
        self._action: list[Array | None] = [None] * num_envs
        # of each column: the latest actions since its environment was reset, and how many there were
        self._taken: list[deque[Array]] = [deque(maxlen=REPLAY_LIMIT) for _ in range(num_envs)]
        self._counts = [0] * num_envs
        # A hook or a task may be due between two episodes.
        self._begins_ahead = listener is None and not self._tasks.exist
        self._next_seeds: list[int | None] = [None] * num_envs  # of the episodes that begin ahead

    def _reset(self) -> None:
        if self._begins_ahead:
            for column, env in enumerate(self.envs):
                with suppress(Exception):  # is raised by the reset itself
                    env.process.ask_reset(self.seeds.current(column, ahead=1))
        self._asked[:] = False
        super()._reset()
        self.present[:] = True

    def step(
        self,
        actions: Array,  # [B, *act], as the policy chose them
    ) -> StepResult:
        """Step the present columns, and return once some of all that were asked have answered."""
        self._ask(actions)
        self._rewards[:] = 0.0
        self._terminated[:] = self._truncated[:] = False
        final_obs: dict[int, Array] = {}
        failed: list[int] = []
        for column in self._answered():
            self._asked[column] = False
            self.present[column] = True
            action = self._action[column]
            assert action is not None
            self._taken[column].append(action)
            self._counts[column] += 1
            self._step_column(column, self._env_action[column], final_obs, failed)
            if self._marks_lives and self.envs[column].process.life_lost:
                self._terminated[column] = True
        live = self._kill(failed) & self.present
        return self._result(final_obs, live)

    def _ask(self, actions: Array) -> None:
        """Have the present columns step."""
        taken = self._env_actions(actions)
        kept = actions.copy()
        for column in np.flatnonzero(self.present).tolist():
            self._env_action[column], self._action[column] = taken[column], kept[column]
            cut = self._lengths[column] + 1 >= self._horizon and not self._soft_horizon
            with suppress(Exception):  # is raised by the step itself
                self.envs[column].process.ask_step(taken[column], self._next_seeds[column], cut=cut)
        self._asked |= self.present
        self.present[:] = False

    def _answered(self) -> Iterator[int]:
        """The columns that have answered, in order, after the wait."""
        due = time.perf_counter() + self._wait_s
        waiting = {column for column in np.flatnonzero(self._asked).tolist()}
        arrived = [column for column in waiting if self.envs[column].process.has_answer]
        waiting.difference_update(arrived)
        while waiting:
            left = due - time.perf_counter()
            ready = self._selector.select(max(left, 0.0) if arrived else None)
            for key, _ in ready:
                column = key.data
                if column in waiting:
                    waiting.remove(column)
                    arrived.append(column)
                if not self.envs[column].process.take():
                    self._listen_no_more(column)
            if arrived and (left <= 0 or not ready):
                break
        yield from sorted(arrived)

    def _listen_to(self, column: int, env: RemoteEnv) -> None:
        self._listen_no_more(column)
        self._descriptors[column] = env.process.fileno()
        self._selector.register(self._descriptors[column], selectors.EVENT_READ, column)

    def _listen_no_more(self, column: int) -> None:
        if (descriptor := self._descriptors.pop(column, None)) is not None:
            self._selector.unregister(descriptor)

    def _actions_taken(self) -> list[Array | None]:
        found: list[Array | None] = []
        for taken, count in zip(self._taken, self._counts, strict=True):
            shape = (len(taken), *self.action_layout.shape)
            found.append(np.array(taken).reshape(shape) if len(taken) == count else None)
        return found

    def _keep_actions(self, taken: list[Array]) -> None:
        for column, actions in enumerate(taken):
            self._forget_actions(column)
            self._taken[column].extend(actions)
            self._counts[column] = len(actions)
        self.present[:] = True

    def _forget_actions(self, column: int) -> None:
        if self._begins_ahead:
            self._next_seeds[column] = self.seeds.current(column, ahead=1)
        self._taken[column].clear()
        self._counts[column] = 0

    def close(self) -> None:
        """Close every environment and end its process."""
        ask_to_close(self.envs)
        super().close()
        self._selector.close()
        self._processes.end()
