"""The protocol between an algorithm and its learners, and its in-process form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from reef.batch import FragmentGradient, KeptRollouts, Perturbations, Rollout, Sample, Transitions
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.learn.device import flushing_denormals, learner_threads, using_threads
from reef.learn.learner import Learner, Update
from reef.nn.make import make_policy
from reef.spaces import PolicySpaces, Space
from reef.types import PolicyId, State, Weights

MakeLearners = Callable[[AlgorithmConfig, PolicySpaces], dict[PolicyId, Learner[Any]]]
MOST_SUBMITTED = 2  # updates: one that is computed, one that waits
Batches = (
    dict[PolicyId, Rollout]
    | dict[PolicyId, Transitions]
    | dict[PolicyId, Perturbations]
    | dict[PolicyId, FragmentGradient]
    | dict[PolicyId, KeptRollouts]
)


class Learners(Protocol):
    """One learner per policy that may learn, in this process or as Ray actors that share the work on each policy."""

    def update(self, batches: Batches, timestep: int) -> dict[PolicyId, Update]:
        """Improve each policy on its batch; `timestep` drives the schedules. No submitted update may be pending."""

    def submit(self, batches: Batches, timestep: int) -> bool:
        """Start an update without waiting; return False, and do nothing, if `MOST_SUBMITTED` updates are pending."""

    def results(self, timeout_s: float | None = None) -> list[dict[PolicyId, Update]]:
        """Return results of submitted updates, oldest first: at least one, unless time runs out or none is pending."""

    def set_policies(self, config: AlgorithmConfig, spaces: PolicySpaces) -> None:
        """Have a learner for each policy that may learn by `config`, after all submitted updates; others are new."""

    def weights(self) -> Weights:
        """The parameters of every policy, for publishing to workers."""

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters, after all submitted updates."""

    def state(self) -> State:
        """Everything that a checkpoint needs for a bit-exact resume, after all submitted updates."""

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, also with another number of learners; results not yet fetched are lost."""

    def stop(self) -> None:
        """End processes."""


class Ranks(Learners, Protocol):
    """Learners that sample what they learn from: the batches of `update` are `KeptRollouts`."""

    updated: list[int]  # indices of the workers on whose rollouts the last update was made; none if all were lost

    def sample(self) -> list[Sample]:
        """Let each rank sample its share of a train batch, and keep the rollouts."""


class LocalLearners:
    """Learners in this process."""

    def __init__(self, make: MakeLearners, config: AlgorithmConfig, spaces: PolicySpaces) -> None:
        """`make`: makes learners for policies of these spaces."""
        self.learners, self._make = make(config, spaces), make
        # called before each update: the number of torch threads for it
        self.threads: Callable[[], int] = torch.get_num_threads
        self._updates: list[dict[PolicyId, Update]] = []  # results not yet fetched

    @flushing_denormals()
    def update(self, batches: Batches, timestep: int) -> dict[PolicyId, Update]:
        """Improve each policy on its batch."""
        with using_threads(self.threads()):
            return {policy_id: self.learners[policy_id].update(batch, timestep) for policy_id, batch in batches.items()}

    def submit(self, batches: Batches, timestep: int) -> bool:
        """Run the update now, and keep its result for `results`."""
        if len(self._updates) >= MOST_SUBMITTED:
            return False
        self._updates.append(self.update(batches, timestep))
        return True

    def results(self, timeout_s: float | None = None) -> list[dict[PolicyId, Update]]:
        """Return the results of submitted updates at once."""
        updates, self._updates = self._updates, []
        return updates

    def set_policies(self, config: AlgorithmConfig, spaces: PolicySpaces) -> None:
        """Keep the learners of policies that may learn by `config`, and make those of others."""
        kept = {policy_id: own for policy_id, own in self.learners.items() if config.may_train(policy_id)}
        new = {policy_id: own for policy_id, own in spaces.items() if policy_id not in kept}
        self.learners = kept | self._make(config, new)

    def weights(self) -> Weights:
        """Copies of the parameters."""
        return {policy_id: learner.weights() for policy_id, learner in self.learners.items()}

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters."""
        for policy_id in weights.keys() & self.learners.keys():
            self.learners[policy_id].set_weights(weights[policy_id])

    def state(self) -> State:
        """The state of each learner by policy."""
        return {policy_id: learner.state() for policy_id, learner in self.learners.items()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        for policy_id in state.keys() & self.learners.keys():
            self.learners[policy_id].set_state(state[policy_id])
        self._updates.clear()

    def stop(self) -> None:
        """Do nothing: no other process runs."""


def learners_of(
    learner_class: type[Learner[Any]], config: AlgorithmConfig, spaces: PolicySpaces, **share: Any
) -> dict[PolicyId, Learner[Any]]:
    """Make a learner for each policy that may learn; `share`: rank, size and reduce if several share a policy."""
    trained = {policy_id: own for policy_id, own in spaces.items() if config.may_train(policy_id)}
    for policy_id, own in trained.items():
        if config.spec(policy_id).policy_class is not None:
            _check_class(config, policy_id, own)
    return {policy_id: learner_class(config.for_policy(policy_id), *own, **share) for policy_id, own in trained.items()}


def _check_class(config: AlgorithmConfig, policy_id: PolicyId, spaces: tuple[Space, Space]) -> None:
    """Raise ConfigError unless a policy of a class of its own can be trained by the algorithm."""
    own = type(make_policy(config.for_policy(policy_id), *spaces))
    usual = type(make_policy(config.for_policy(None), *spaces))
    if not issubclass(own, usual):
        raise ConfigError(
            f"policies: {policy_id!r}: policy_class makes a {own.__name__}, but {config.label} trains a "
            f"{usual.__name__}. Derive it from that, or leave {policy_id!r} out of policies_to_train."
        )


def in_worker(config: AlgorithmConfig) -> AlgorithmConfig:
    """Return the settings of a learner in the process of a rollout worker: it is on the GPU of that worker."""
    gpus = min(config.num_gpus_per_worker, 1.0)
    return config.copy().resources(num_gpus=gpus, num_gpus_per_learner_worker=gpus, local_gpu_idx=0).freeze()


def local_learners(
    learner_class: type[Learner[Any]],
    config: AlgorithmConfig,
    spaces: PolicySpaces,
    neighbours: Callable[[], int] = lambda: 0,
) -> LocalLearners:
    """Make the learners of `num_learner_workers=0`; `neighbours()` counts the current rollout workers on this machine.

    Unless these sample ahead, they wait during learning, so the learner may use their CPUs.
    """
    local = LocalLearners(partial(learners_of, learner_class), config, spaces)
    learners = local.learners.values()
    multiply_adds = max(learner.policy.multiply_adds * learner.minibatch_size for learner in learners)
    torch.set_num_threads(config.torch_threads_per_worker)  # for sampling in this process between updates
    local.threads = lambda: learner_threads(
        config, multiply_adds, busy=neighbours() if config.samples_while_learning else 0
    )
    return local
