"""The seam between an algorithm and its learners, and its form in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from reef.batch import Rollout, Transitions
from reef.config import AlgorithmConfig
from reef.learn.learner import Learner, Update
from reef.learn.threads import flushing_denormals, learner_threads, using_threads
from reef.spaces import PolicySpaces
from reef.types import PolicyId, State, Weights

MOST_SUBMITTED = 2  # updates: the learners work on one while the next one waits for them
Batches = dict[PolicyId, Rollout] | dict[PolicyId, Transitions]


class Learners(Protocol):
    """One learner per policy, in this process or as Ray actors that share the work of each."""

    def update(self, batches: Batches, timestep: int) -> dict[PolicyId, Update]:
        """Improve each policy on its batch; `timestep` drives the schedules. Nothing may be submitted beside it."""
        ...

    def submit(self, batches: Batches, timestep: int) -> bool:
        """As `update` without waiting; False, and nothing happens, while `results` owes `MOST_SUBMITTED` updates."""
        ...

    def results(self, timeout_s: float | None = None) -> list[dict[PolicyId, Update]]:
        """What submitted updates report, oldest first: at least one, unless time runs out or none was submitted."""
        ...

    def weights(self) -> Weights:
        """The parameters of every policy, for publishing."""
        ...

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters, after all submitted updates."""
        ...

    def state(self) -> State:
        """Everything that a checkpoint needs to go on bit for bit, after all submitted updates."""
        ...

    def set_state(self, state: State) -> None:
        """The reverse of `state`, also for another number of learners; results that were not fetched are lost."""
        ...

    def stop(self) -> None:
        """End processes."""
        ...


class LocalLearners:
    """The `Learners` of one process."""

    def __init__(self, learners: dict[PolicyId, Learner[Any]], threads: Callable[[], int]) -> None:
        """`threads()` says, before each update, how many threads torch uses for it."""
        self.learners, self.threads = learners, threads
        self._updates: list[dict[PolicyId, Update]] = []  # that `results` owes

    @flushing_denormals()
    def update(self, batches: Batches, timestep: int) -> dict[PolicyId, Update]:
        """Improve each policy on its batch."""
        with using_threads(self.threads()):
            return {policy_id: self.learners[policy_id].update(batch, timestep) for policy_id, batch in batches.items()}

    def submit(self, batches: Batches, timestep: int) -> bool:
        """Update now and hold what it reports until `results`."""
        if len(self._updates) >= MOST_SUBMITTED:
            return False
        self._updates.append(self.update(batches, timestep))
        return True

    def results(self, timeout_s: float | None = None) -> list[dict[PolicyId, Update]]:
        """What submitted updates report; nothing to wait for."""
        updates, self._updates = self._updates, []
        return updates

    def weights(self) -> Weights:
        """Copies of the parameters."""
        return {policy_id: learner.weights() for policy_id, learner in self.learners.items()}

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters."""
        for policy_id, vector in weights.items():
            self.learners[policy_id].set_weights(vector)

    def state(self) -> State:
        """The state of each learner by policy."""
        return {policy_id: learner.state() for policy_id, learner in self.learners.items()}

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        for policy_id, stored in state.items():
            self.learners[policy_id].set_state(stored)
        self._updates.clear()

    def stop(self) -> None:
        """Nothing runs outside this process."""


def learners_of(
    learner_class: type[Learner[Any]], config: AlgorithmConfig, spaces: PolicySpaces, **share: Any
) -> dict[PolicyId, Learner[Any]]:
    """A learner for each policy; `share`: its part of the work, where several have one policy."""
    return {policy_id: learner_class(config.for_policy(policy_id), *own, **share) for policy_id, own in spaces.items()}


def local_learners(
    learner_class: type[Learner[Any]],
    config: AlgorithmConfig,
    spaces: PolicySpaces,
    neighbours: Callable[[], int] = lambda: 0,
) -> LocalLearners:
    """The learners of `num_learner_workers=0`; `neighbours()` counts rollout workers on this machine: they come and go.

    Unless those sample ahead, they wait while it learns, and it may have their CPUs.
    """
    learners = learners_of(learner_class, config, spaces)
    multiply_adds = max(learner.policy.multiply_adds * learner.minibatch_size for learner in learners.values())
    torch.set_num_threads(config.torch_threads_per_worker)  # between updates this process samples
    return LocalLearners(
        learners,
        lambda: learner_threads(config, multiply_adds, busy=neighbours() if config.sample_async else 0),
    )
