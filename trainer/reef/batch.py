"""What learners learn from: `Rollout` in time order, `Transitions` in no order, `Perturbations`, `FragmentGradient`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reef.types import Array, PolicyId, Stats


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of B columns, all acted by one version of one policy. A column is an (environment, agent) pair."""

    obs: Array  # [T, B, *obs]
    actions: Array  # [T, B, *action], as the policy chose them: before unsquashing and clipping
    rewards: Array  # [T, B] float32
    next_obs: Array  # [T, B, *obs], the true successor, also at the end of an episode
    terminated: Array  # [T, B] bool: the environment ended, nothing follows
    truncated: Array  # [T, B] bool: cut off, the successor still has a value
    mask: Array  # [T, B] bool: False for dead steps and padding, which count for nothing
    extras: dict[str, Array] = field(default_factory=dict)  # [T, B, ...] what the policy returned when it acted
    state_in: dict[str, Array] = field(default_factory=dict)  # [B, ...] recurrent state before step 0
    policy_version: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(T, B)."""
        steps, columns = self.rewards.shape
        return steps, columns

    @property
    def done(self) -> Array:
        """[T, B] bool: the episode ended here, for either reason."""
        return np.logical_or(self.terminated, self.truncated)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.mask))

    def __reduce__(self) -> tuple[Callable[..., Rollout], tuple[Any, ...]]:
        """Between processes go T + 1 observations, and those successors that are not the next observation."""
        obs = np.concatenate([self.obs, self.next_obs[-1:]])
        differs = (obs[1:] != self.next_obs).any(axis=tuple(range(2, obs.ndim)))
        others = {name: getattr(self, name) for name in self.__slots__ if name not in ("obs", "next_obs")}
        return _with_successors, (obs, differs.nonzero(), self.next_obs[differs], others)

    def flatten(self) -> Transitions:
        """The valid steps as transitions, column after column, so that a column's steps stay neighbours."""
        keep = self.mask.T.reshape(-1)
        everything = bool(keep.all())

        def flat(array: Array) -> Array:
            rows = array.swapaxes(0, 1).reshape(-1, *array.shape[2:])
            return rows if everything else rows[keep]

        return Transitions(
            **{name: flat(array) for name, array in transition_arrays(self).items()},
            extras={name: flat(array) for name, array in self.extras.items()},
        )


def _with_successors(obs: Array, places: tuple[Array, Array], successors: Array, others: dict[str, Any]) -> Rollout:
    """The rollout of the observations [T + 1, B, *obs], with other `successors` at the `places` (step, column)."""
    next_obs = obs[1:]
    if len(successors):
        next_obs = next_obs.copy()
        next_obs[places] = successors
    return Rollout(obs=obs[: len(next_obs)], next_obs=next_obs, **others)


TRANSITION_COLUMNS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")


@dataclass(frozen=True, slots=True)
class Transitions:
    """N steps in no order, or N sequences [N, W, ...] of `SequenceCutter`: what replay holds and minibatches have."""

    obs: Array  # [N, *obs]
    actions: Array  # [N, *action]
    rewards: Array  # [N] float32, already summed and discounted where n-step
    next_obs: Array  # [N, *obs], n steps on where n-step
    terminated: Array  # [N] bool
    truncated: Array  # [N] bool
    extras: dict[str, Array] = field(default_factory=dict)  # [N, ...], e.g. "discounts" (gamma^n), "weights", "indices"

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, rows: Array | slice) -> Transitions:
        return Transitions(
            **{name: array[rows] for name, array in transition_arrays(self).items()},
            extras={name: array[rows] for name, array in self.extras.items()},
        )


def transition_arrays(batch: Rollout | Transitions) -> dict[str, Any]:
    """The arrays of `TRANSITION_COLUMNS`, by name."""
    return {name: getattr(batch, name) for name in TRANSITION_COLUMNS}


@dataclass(frozen=True, slots=True)
class Perturbations:
    """Returns of n pairs of perturbed policies: with noise added to the weights, and with it subtracted."""

    indices: Array  # [n] int64, where each noise begins in the noise table
    returns: Array  # [n, 2] of one episode each

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, slots=True)
class FragmentGradient:
    """The gradient of a loss over one fragment, computed by the worker that sampled it."""

    vector: Array  # [P]
    steps: int  # valid steps of the fragment
    policy_version: int  # of the weights that sampled, and for which this is the gradient
    stats: Stats

    def __len__(self) -> int:
        return self.steps


@dataclass(frozen=True, slots=True)
class KeptRollouts:
    """Stands for the rollouts of one policy that stay in the workers that sampled them."""

    steps: dict[int, int]  # valid ones, by index of the worker

    def __len__(self) -> int:
        return sum(self.steps.values())


@dataclass(frozen=True, slots=True)
class Episode:
    """What is known of one finished episode."""

    reward: float
    length: int  # environment steps
    policy_rewards: dict[PolicyId, float] = field(default_factory=dict)
    custom_metrics: dict[str, float] = field(default_factory=dict)
    hist_data: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Video:
    """A recorded episode."""

    content: bytes  # an mp4 file
    description: dict[str, Any]  # JSON values, such as its "return" and "length"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one call of a worker's `sample` returns."""

    rollouts: dict[PolicyId, Rollout]
    episodes: list[Episode]  # finished during this call
    env_steps: int  # environment steps, dead steps not counted
    progress: int  # steps towards a train batch: dead steps of fixed-length fragments are among them, padding is not
    worker_index: int = 0
    timers: dict[str, float] = field(default_factory=dict)  # seconds spent, by name
    # [B] by policy: fragments that the episode of each column had gone on for; 0: it began with this one
    fragment_index: dict[PolicyId, Array] = field(default_factory=dict)
    # where the rollouts stay in the worker, see `without_rollouts`: the valid steps of each, and its gradient
    agent_steps: dict[PolicyId, int] = field(default_factory=dict)
    gradients: dict[PolicyId, FragmentGradient] = field(default_factory=dict)
    videos: list[Video] = field(default_factory=list)

    def without_rollouts(self, gradients: dict[PolicyId, FragmentGradient] | None = None) -> Sample:
        """Return all but the rollouts, with the number of their valid steps, and `gradients` if there are any."""
        steps = {policy_id: len(rollout) for policy_id, rollout in self.rollouts.items()}
        return replace(self, rollouts={}, agent_steps=steps, gradients=gradients or {})


def cut_ends(batch: Rollout) -> Array:
    """[T, B] bool: steps whose true successor is not the next observation, although the episode did not terminate."""
    cut = batch.truncated.copy()
    cut[-1] = True
    cut[:-1] |= ~batch.mask[1:]  # a shorter fragment ends where its padding starts
    return cut & batch.mask


ROLLOUT_COLUMNS = (*TRANSITION_COLUMNS, "mask")


def concat_columns(rollouts: Sequence[Rollout]) -> Rollout:
    """Put rollouts of several workers side by side: [T, B1 + B2 + ...]. Shorter ones are padded with masked steps."""
    if len(rollouts) == 1:
        return rollouts[0]
    length = max(rollout.shape[0] for rollout in rollouts)

    def join(arrays: list[Array]) -> Array:
        return np.concatenate([_pad(array, length) for array in arrays], axis=1)

    first = rollouts[0]
    return Rollout(
        **{name: join([getattr(rollout, name) for rollout in rollouts]) for name in ROLLOUT_COLUMNS},
        extras={name: join([rollout.extras[name] for rollout in rollouts]) for name in first.extras},
        state_in={name: np.concatenate([rollout.state_in[name] for rollout in rollouts]) for name in first.state_in},
        policy_version=min(rollout.policy_version for rollout in rollouts),
    )


def _pad(array: Array, length: int) -> Array:
    """[T, ...] -> [length, ...], with zeros at the end."""
    missing = length - len(array)
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)]) if missing else array
