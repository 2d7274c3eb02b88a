"""Ape-X (Horgan et al. 2018): many workers, each with its own amount of exploration, fill a prioritized replay memory.

Rollout [T, B] by older weights, with its Q-values -> n-step transitions and first priorities, in the shards of the
memory -> batches -> DQN's update -> new priorities, and weights for the workers that have acted long with theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.algorithms.replaying import OffPolicyConfig
from reef.batch import Sample
from reef.config import default, setting
from reef.config.groups.inputs import InputUse
from reef.config.ignored import Network, ignored
from reef.config.refusals import Refusal
from reef.learn.pace import Pace
from reef.replay.memory import check_memory
from reef.replay.settings import ReplayBufferConfig
from reef.run.algorithm import Algorithm
from reef.run.build import make_shards
from reef.run.checkpoint import restoring
from reef.run.flows.async_replay import async_replay
from reef.trees import require_like
from reef.types import PolicyId, State, Stats

NO_TIMEOUT = "the flow waits for whichever comes first, fragments, batches or the learner"


class ApexConfig(OffPolicyConfig):
    """Settings of Ape-X, whatever learns."""

    policies_may_change: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = True
    input_use: ClassVar[InputUse] = "none"
    of_all_policies: ClassVar[tuple[str, ...]] = (
        *OffPolicyConfig.of_all_policies,
        "gamma",
        "num_atoms",
        "num_replay_buffer_shards",
        "max_requests_in_flight_per_replay_worker",
        "worker_side_prioritization",
        "max_weight_sync_delay",
    )
    refusals: ClassVar[Mapping[str, Refusal]] = {
        **OffPolicyConfig.refusals,
        "timeout_s_sampler_manager": Refusal("training", 0.0, NO_TIMEOUT),
        "timeout_s_replay_manager": Refusal("training", 0.0, NO_TIMEOUT),
    }

    num_rollout_workers: int = default(32)
    num_gpus: float = default(1.0)
    n_step: int = default(3)
    train_batch_size: int = default(512)
    rollout_fragment_length: int | Literal["auto"] = default(50)
    min_sample_timesteps_per_iteration: int | None = default(25_000)
    num_steps_sampled_before_learning_starts: int = default(50_000)
    training_intensity: float | None = default(1.0)
    replay_buffer_config: ReplayBufferConfig = default({"capacity": 2_000_000})
    num_replay_buffer_shards: int = setting(
        4, "Parts of the replay memory, with rollout workers each in a process of its own.", minimum=1
    )
    max_requests_in_flight_per_replay_worker: int = setting(
        2, "Batches that are requested from one shard at a time.", minimum=1
    )
    worker_side_prioritization: bool = setting(
        True,
        "Workers estimate the TD errors from which new transitions get their priorities; false, or several atoms: they "
        "get the largest priority so far.",
    )
    max_weight_sync_delay: int = setting(
        400,
        "Environment steps of one worker after which the next update sends it new weights.",
        minimum=1,
        unit="steps",
    )

    @property
    def workers_estimate_values(self) -> bool:
        """For the first priorities of transitions."""
        return (
            self.worker_side_prioritization
            and self.replay_buffer_config.prioritized_replay
            and getattr(self, "num_atoms", 1) == 1  # priorities are cross-entropies otherwise
            and not self.in_evaluation
        )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.training_intensity is None:
            yield (
                "training_intensity=None: sampling and learning do not wait for each other, so it takes a ratio. Set "
                "it to 1.0, or to train_batch_size / 4 for an update every 4 environment steps."
            )
        if self.count_steps_by != "env_steps":
            yield (
                f"count_steps_by={self.count_steps_by!r}: not available yet with {self.label}, whose pace counts steps "
                "of environments. Leave it at 'env_steps'."
            )
        # "auto": what is left over goes to the first workers
        shortest = self.fragment_length(self.num_rollout_workers)
        if shortest < self.n_step and self.batch_mode == "truncate_episodes":
            yield (
                f"n_step={self.n_step}: sums of rewards end with the fragment, and "
                f"rollout_fragment_length={self.rollout_fragment_length!r} makes fragments of {shortest} steps. "
                f"Set rollout_fragment_length to {self.n_step} or more."
            )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for shards in this process, which answer at once."""
        yield from super().ignored_settings(network)
        if not self.num_rollout_workers:
            yield from ignored(
                self, "without rollout workers in processes of their own", "max_requests_in_flight_per_replay_worker"
            )


class Apex(Algorithm):
    """Workers sample, shards of the replay memory draw, and the learner learns: none waits for the others."""

    config: ApexConfig

    def setup(self) -> None:
        """Create the replay shards."""
        config = self.config
        assert config.training_intensity is not None, "it was validated"
        self.pace = Pace(
            intensity=config.training_intensity,
            starts=config.num_steps_sampled_before_learning_starts,
            batch_size=config.total_train_batch_size,
            round_steps=config.fragment_length() * config.num_envs_per_worker * config.num_rollout_workers,
            sync_delay=config.max_weight_sync_delay,
        )
        self.counters["num_replay_shards_recreated"] = 0
        self.shards = make_shards(
            config,
            self.deadline,
            config.replay_buffer_config,
            most=config.max_requests_in_flight_per_replay_worker,
            count=config.num_replay_buffer_shards,
            batch_size=config.total_train_batch_size,
            n_step=config.n_step,
            gamma=config.gamma,
            seed=config.seed,
        )

    def training_step(self) -> dict[PolicyId, Stats]:
        """One update of the asynchronous flow."""
        before = sum(self.shards.restarts)
        stats = async_replay(self, self.shards, self.pace)
        self.counters["num_replay_shards_recreated"] += sum(self.shards.restarts) - before
        return stats

    def count_sampled(self, sample: Sample) -> None:
        """Count a sample; its episodes are reported only if its worker is in the third that explores least."""
        if sample.worker_index not in self._least_exploring():
            sample = replace(sample, episodes=[])
        super().count_sampled(sample)

    def _least_exploring(self) -> list[int]:
        """The workers whose episodes are reported; all of them if exploration does not differ."""
        healthy = sorted({*self.workers.healthy})
        explorations = [runner.exploration for runner in self.workers.local_worker().runners.values()]
        differ = self.config.explore and any(getattr(each, "per_worker", False) for each in explorations)
        return healthy[-math.ceil(len(healthy) / 3) :] if differ else healthy

    def state(self) -> State:
        """The algorithm's state with the shards, and the weights of the worker in this process if it samples."""
        acting = {} if self.config.num_rollout_workers else self.workers.local_worker().get_weights()
        return super().state() | {"replay": self.shards.state(), "pace": self.pace.state(), "acting": acting}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        local = self.workers.local_worker()
        layouts = {name: (one.observation_layout, one.action_layout) for name, one in local.policy_map.items()}
        with restoring("its replay shards"):
            require_like(
                state, {"replay": {"rng": {}, "turn": 0, "sizes": [], "shards": []}, "pace": {}, "acting": {}}, ""
            )
            for shard in state["replay"]["shards"]:
                if shard is not None:
                    check_memory(shard, layouts)
            self.shards.set_state(state["replay"])
        if state["acting"] and not self.config.num_rollout_workers:
            self.pace.set_state(state["pace"])
            self.workers.set_weights(state["acting"], local.policy_version, local.timestep)

    def stop(self) -> None:
        """End all processes and close all environments."""
        super().stop()
        if shards := getattr(self, "shards", None):  # None: it could not be set up
            shards.stop()


class ApexDQNConfig(ApexConfig, DQNConfig):
    """Settings of Ape-X DQN."""

    algorithm: ClassVar[str] = "APEX"
    algorithm_class: ClassVar[str] = "reef.algorithms.apex:ApexDQN"
    possible_memories: ClassVar[tuple[str, ...]] = ()

    exploration_config: dict[str, Any] = default({"type": "PerWorkerEpsilonGreedy"})
    target_network_update_freq: int = default(500_000)


class ApexDQN(Apex):
    """Ape-X with DQN's update."""

    config_class = ApexDQNConfig
    learner_class = DQNLearner
