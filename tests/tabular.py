"""A small Markov decision process whose policies have exact values, and episodes that a policy plays in it."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from reef.batch import Rollout
from reef.learn.estimators import LoggedSteps
from reef.spaces import Layout
from reef.types import Array

STATES, ACTIONS, GAMMA = 3, 2, 0.9
OBSERVED, ACTED = Layout.of(spaces.Box(0.0, 1.0, (STATES,), np.float32)), Layout.of(spaces.Discrete(ACTIONS))
# [S, A, S + 1] the chances of the next state; the last one is the end
NEXT = np.array(
    [
        [[0.1, 0.6, 0.2, 0.1], [0.5, 0.0, 0.3, 0.2]],
        [[0.0, 0.3, 0.5, 0.2], [0.4, 0.2, 0.0, 0.4]],
        [[0.3, 0.1, 0.2, 0.4], [0.0, 0.2, 0.5, 0.3]],
    ]
)
REWARDS = np.array([[1.0, -0.5], [0.0, 2.0], [-1.0, 0.5]])  # [S, A]
BEHAVIOR = np.array([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6]])  # [S, A]
TARGET = np.array([[0.8, 0.2], [0.3, 0.7], [0.25, 0.75]])


class Table:
    """A policy of probabilities [S, A], as an estimator's target."""

    def __init__(self, probabilities: Array) -> None:
        self.table = probabilities

    def logp(self, steps: LoggedSteps) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.table[steps.obs.argmax(-1), steps.actions])

    def probabilities(self, steps: LoggedSteps) -> Array:
        return self.table[steps.obs.argmax(-1)]

    def next_probabilities(self, steps: LoggedSteps) -> Array:
        return self.table[steps.next_obs.argmax(-1)]


def exact_q(policy: Array, gamma: float = GAMMA, transitions: Array = NEXT) -> Array:
    """[S, A] by the Bellman equation."""
    between = transitions[:, :, :STATES]
    values = np.linalg.solve(
        np.eye(STATES) - gamma * np.einsum("sa,sat->st", policy, between), (policy * REWARDS).sum(1)
    )
    return REWARDS + gamma * between @ values


def exact_value(policy: Array, gamma: float = GAMMA, transitions: Array = NEXT) -> float:
    """Of state 0, in which episodes begin."""
    return float((policy * exact_q(policy, gamma, transitions)).sum(1)[0])


def played(count: int, *, policy: Array = BEHAVIOR, transitions: Array = NEXT, seed: int = 0) -> list[Rollout]:
    """Episodes [T, 1] of a policy."""
    rng, episodes, rows = np.random.default_rng(seed), [], np.eye(STATES + 1, STATES, dtype=np.float32)
    for _ in range(count):
        states, actions = [0], []
        while states[-1] < STATES:
            actions.append(int(rng.choice(ACTIONS, p=policy[states[-1]])))
            states.append(int(rng.choice(STATES + 1, p=transitions[states[-1], actions[-1]])))
        before, acts = np.array(states[:-1]), np.array(actions)
        ended = np.array(states[1:]) == STATES
        episodes.append(
            Rollout(
                obs=rows[before][:, None],
                actions=acts[:, None],
                rewards=REWARDS[before, acts].astype(np.float32)[:, None],
                next_obs=rows[states[1:]][:, None],
                terminated=ended[:, None],
                truncated=np.zeros_like(ended)[:, None],
                mask=np.ones_like(ended)[:, None],
                extras={"action_logp": np.log(policy[before, acts])[:, None]},
            )
        )
    return episodes


def logged(count: int, **kwargs: object) -> LoggedSteps:
    return LoggedSteps.of(played(count, **kwargs))  # type: ignore[arg-type]
