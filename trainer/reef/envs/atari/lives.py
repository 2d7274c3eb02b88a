"""Atari games stepped one after the other, where the loss of a life is an end for the learner."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from reef.envs.atari.frames import LivesEnv
from reef.envs.loop import LoopVectorEnv
from reef.envs.vector import StepResult
from reef.types import Array


def lives_of(env: Any) -> LivesEnv | None:
    """The part of a game that knows its lives, below Gymnasium's wrappers and a recording; None for what has none."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, LivesEnv):
            return env
        env = env.env
    return getattr(env, "lives_env", None)


class GamesVectorEnv(LoopVectorEnv):
    """B games; a step that takes one of several lives is `terminated`, and the game goes on (Mnih et al., 2015).

    Such a step has no place in `final_obs`: the episode that is counted, reported and resumed is the whole game.
    """

    def __init__(self, config: Any, *arguments: Any) -> None:
        """As of `LoopVectorEnv`, whose environments have `lives_of`."""
        super().__init__(config, *arguments)
        self._marks_lives = not config.no_done_at_end

    def step(
        self,
        actions: Array,  # [B], as the policy chose them
    ) -> StepResult:
        """Step every column once."""
        result = super().step(actions)
        if self._marks_lives:
            for column, env in enumerate(self.envs):
                lives = lives_of(env)
                if lives is not None and lives.life_lost:
                    self._terminated[column] = True
        return result
