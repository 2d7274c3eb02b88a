"""The `Learners` that are the rollout workers themselves: the driver coordinates, and holds no weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from reef.batch import KeptRollouts, Sample
from reef.config import AlgorithmConfig
from reef.distributed.ranks.rank import CollectiveError, Held
from reef.distributed.ray_workers import RayWorkers
from reef.distributed.slot import Process
from reef.errors import TrainingError, WorkerError, sentence
from reef.learn.learner import Update
from reef.learn.learners import LocalLearners
from reef.types import PolicyId, State, Weights

log = logging.getLogger(__name__)
MOST_TRIES = 3  # in a row that fail although no rank is lost
ALL_LOST = "every rank was lost, and with them the newest weights. Restore the newest checkpoint to go on."
NOT_TOGETHER = (
    "{tries} times in a row the ranks could not meet, or average their gradients, although none of them was lost. "
    "{texts} Check that the pods of the job reach each other on every port (NetworkPolicy, firewalls), and that "
    "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, if they are set, name the network device between them. A rank waits "
    "{limit:g} s for another one (worker_health_probe_timeout_s): raise it if some need longer for one step."
)
NOT_SHARED = (
    "no policy has a step that worked in each of the ranks, which update a policy together; without one are {missing}. "
    "Let policy_mapping_fn use a policy in every rollout worker, set a larger train_batch_size, or take PPO, which has "
    "one learner."
)


class RayRanks(LocalLearners):
    """Rollout workers of which each samples its share of a batch, and all make the update together.

    They average their gradients in each step, so that all hold the same weights. When ranks are lost, and the settings
    cover it, the others meet again and go on from the state of one of them; replacements join before the next batch.
    """

    def __init__(self, config: AlgorithmConfig, workers: RayWorkers) -> None:
        """`workers`: those whose actors are `Rank`s."""
        super().__init__(lambda config, spaces: {}, config, {})
        self._config, self._workers = config, workers
        # Processes by the indices of the workers: of the ranks in the group, and of those that have sampled.
        self._ranks_in_group: dict[int, Process] = {}
        self._sampled: dict[int, Process] = {}
        self.updated: list[int] = []
        self._state_to_start_from: Held | None = None  # what all ranks take when they meet next
        self._failed_tries = 0  # since the last update or the last loss of a rank

    def sample(self) -> list[Sample]:
        """Let each rank sample its share of a train batch; the rollouts stay there."""
        found: dict[int, list[Sample]] = {}
        while not found:
            ranks, config = self._meet(), self._config
            shares = {}
            for place, index in enumerate(ranks, 1):
                steps = config.fragment_length(place, len(ranks))
                auto = config.rollout_fragment_length == "auto"
                share = steps * config.num_envs_per_worker if auto else math.ceil(config.enough_steps / len(ranks))
                shares[index] = steps, share
            found = self._workers.call_some("sample_share", shares)
        self._sampled = {index: self._ranks_in_group[index] for index in found}
        return [sample for samples in found.values() for sample in samples]

    def update(self, batches: dict[PolicyId, KeptRollouts], timestep: int) -> dict[PolicyId, Update]:  # type: ignore[override]
        """Improve the policies on what the ranks have sampled; nothing is returned if all that had any are lost."""
        self.updated = []
        while ranks := self._meet(self._sampled):
            found = self._workers.call_some("improve", dict.fromkeys(ranks, (_shared(batches, ranks), timestep)))
            for answer in found.values():
                if isinstance(answer, TrainingError):
                    raise answer
            done = {index: answer for index, answer in found.items() if isinstance(answer, dict)}
            if len(done) < len(ranks):
                self._state_to_start_from, self._ranks_in_group = self._ask(done or found, "held"), {}
            if done:
                self._failed_tries, self.updated = 0, ranks
                return next(iter(done.values()))
            self._count_try(ranks, found)
        return {}

    def _meet(self, among: dict[int, Process] | None = None) -> list[int]:
        """Let the healthy workers, or those `among` them, meet unless they have; returns their indices."""
        while True:
            healthy = self._workers.processes()
            wanted = {i: process for i, process in healthy.items() if among is None or among.get(i) == process}
            if wanted == self._ranks_in_group or not wanted:
                return list(wanted)
            if self._ranks_in_group and self._state_to_start_from is None:
                survivors = [index for index, process in self._ranks_in_group.items() if healthy.get(index) == process]
                self._state_to_start_from = self._ask(survivors, "held")
            self._ranks_in_group = {}
            first = next(iter(wanted))
            places = {index: (place, len(wanted)) for place, index in enumerate(wanted)}
            opened = self._workers.call_some("open", places)
            if len(opened) < len(wanted):
                continue
            self._state_to_start_from = self._state_to_start_from or self._ask([first], "held")
            answers = self._workers.call_some("meet", dict.fromkeys(wanted, (opened[first], self._state_to_start_from)))
            if list(answers.values()) == [None] * len(wanted):
                self._ranks_in_group, self._state_to_start_from = wanted, None
            else:
                self._count_try(wanted, answers)

    def _count_try(self, ranks: Collection[int], answers: Mapping[int, Any]) -> None:
        """Count a try that failed; WorkerError after several in a row that the loss of a rank does not explain."""
        errors = {index: answer for index, answer in answers.items() if isinstance(answer, CollectiveError)}
        texts = " ".join(f"Rollout worker {index}: {sentence(error)}" for index, error in errors.items())
        self._failed_tries = self._failed_tries + 1 if len(answers) == len(ranks) else 0
        if self._failed_tries >= MOST_TRIES:
            limit = self._config.worker_health_probe_timeout_s
            raise WorkerError(NOT_TOGETHER.format(tries=self._failed_tries, texts=texts, limit=limit))
        if self._failed_tries == 1:
            log.warning("the ranks could not meet, or average their gradients, and try again. %s", texts)

    def _ask(self, indices: Iterable[int], method: str) -> Any:
        """What the first of these ranks that is there answers; WorkerError if none is."""
        for index in indices:
            for answer in self._workers.call_some(method, {index: ()}).values():
                return answer
        raise WorkerError(" ".join(filter(None, [ALL_LOST, self._workers.problem])))

    def weights(self) -> Weights:
        """The parameters of every policy, from one rank."""
        weights: Weights = self._ask(self._meet(), "learned_weights")
        return weights

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters of all ranks."""
        self._workers.call_some("set_learned_weights", dict.fromkeys(self._meet(), (weights,)))

    def state(self) -> State:
        """The state of the learners of one rank: all are the same."""
        state: State = self._ask(self._meet(), "held")[0]
        return state

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, in all ranks, as soon as they meet."""
        self._state_to_start_from, self._ranks_in_group = (state, 0, 0), {}
        self._updates.clear()


def _shared(batches: Mapping[PolicyId, KeptRollouts], ranks: Collection[int]) -> list[PolicyId]:
    """The policies of which each rank has a step; all if no rank has any, which the ranks report.

    Raises:
        TrainingError: no policy has a step in each rank.
    """
    missing = {name: [index for index in ranks if not kept.steps[index]] for name, kept in batches.items()}
    shared = [name for name, without in missing.items() if not without]
    if shared or not any(map(len, batches.values())):
        return shared or list(batches)
    found = [f"rollout worker {index} of {name!r}" for name, without in missing.items() for index in without]
    raise TrainingError(NOT_SHARED.format(missing=", ".join(found[:4])))
