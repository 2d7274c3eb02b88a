"""Common parts of algorithms that learn from replayed transitions: settings, learner with target network, loop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any, ClassVar

from reef.batch import Sample, Transitions
from reef.config import AlgorithmConfig, setting
from reef.config.groups.inputs import InputUse, is_function
from reef.errors import ConfigError
from reef.learn.learner import Learner
from reef.learn.minibatches import in_order, row_count, shuffled
from reef.nn.gradients import Columns
from reef.nn.targets import Target
from reef.replay.memory import ReplayMemory, check_memory
from reef.replay.sequences import SequenceLengths
from reef.replay.settings import ReplayBufferConfig
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows.replay import replay, replay_recorded
from reef.run.recorded.reading import recorded_sources
from reef.types import Array, PolicyId, State, Stats

log = logging.getLogger(__name__)


class OffPolicyConfig(AlgorithmConfig):
    """Settings of algorithms that learn from replayed transitions."""

    input_use: ClassVar[InputUse] = "possible"
    of_all_policies: ClassVar[tuple[str, ...]] = (
        *AlgorithmConfig.of_all_policies,
        "replay_buffer_config",
        "num_steps_sampled_before_learning_starts",
        "training_intensity",
        "n_step",
    )

    replay_buffer_config: ReplayBufferConfig = setting({}, "The replay buffer; see its settings.")
    num_steps_sampled_before_learning_starts: int = setting(
        1000, "Environment steps that only fill the buffer.", minimum=0, unit="steps"
    )
    training_intensity: float | None = setting(
        None,
        "Replayed steps per sampled step, for example train_batch_size / 4 for a gradient step every 4 environment "
        "steps; null makes one gradient step per round of samples.",
        above=0.0,
    )
    n_step: int = setting(1, "Rewards summed before the value of a later state is used.", minimum=1, unit="steps")

    @property
    def sequences(self) -> SequenceLengths | None:
        """The lengths of the sequences that are replayed; None without a memory, where single steps are."""
        if not self.model.memories:
            return None
        return SequenceLengths(self.replay_buffer_config.replay_burn_in, self.model.max_seq_len)

    @property
    def rows_per_update(self) -> int:
        """Replayed rows of a gradient step: steps, or as many sequences as have about so many, over all learners."""
        if self.sequences is None:
            return self.total_train_batch_size
        learners = max(self.num_learner_workers, 1)
        return max(round(self.total_train_batch_size / self.sequences.learned / learners), 1) * learners

    def updates_due(self, before: int, after: int) -> int:
        """Number of gradient steps due when the sampled environment steps have grown from `before` to `after`."""
        if after < self.num_steps_sampled_before_learning_starts:
            return 0
        if self.training_intensity is None:
            return 1
        per_step = self.training_intensity / self.total_train_batch_size
        return int(after * per_step) - int(before * per_step)

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.model.custom_action_dist is not None:
            yield (
                f"model.custom_action_dist={self.model.custom_action_dist!r}: {self.algorithm} learns from Q-values "
                "and knows its own distribution alone. Leave it out, or use an algorithm such as PPO."
            )
        if self.num_learner_workers > 1 and self.total_train_batch_size % self.num_learner_workers:
            yield (
                f"train_batch_size={self.train_batch_size}: num_learner_workers={self.num_learner_workers} cannot "
                "share it evenly. Set train_batch_size_per_learner instead."
            )
        yield from self._sequence_problems()
        yield from self._lockstep_problems()
        if self.reads_records and self.input_use == "possible":
            yield from self._recorded_problems()
        for policy_id in self.policies:
            if self.own_settings(policy_id) and self.for_policy(policy_id).sequences != self.sequences:
                yield (
                    f"policies: {policy_id!r}: config.model has another memory than the rest, and all policies replay "
                    "either steps or sequences of one length. Give model.use_lstm and model.max_seq_len for all."
                )

    def _recorded_problems(self) -> Iterator[str]:
        """A memory is filled by recorded episodes as single steps of one agent, each as often as it was recorded."""
        if isinstance(self.input_, dict):
            yield (
                f"input_={self.input_!r}: {self.label} draws from its replay memory, so that weights have no effect. "
                "Give a list."
            )
        if self.model.use_lstm:
            yield (
                "model.use_lstm=True: recorded episodes do not have the states with which sequences begin. Leave it at "
                "False, or input_ at 'sampler'."
            )
        if self.replay_mode == "lockstep":
            yield "replay_mode='lockstep': recorded episodes are of one agent. Leave it at 'independent'."
        if self.shuffle_buffer_size:
            yield (
                f"shuffle_buffer_size={self.shuffle_buffer_size}: {self.label} draws from its replay memory, which has "
                "replay_buffer_config.capacity. Leave it at 0."
            )

    def _lockstep_problems(self) -> Iterator[str]:
        """What is replayed together must be stored together: a single step of each agent."""
        clashes = {
            "n_step": self.n_step if self.n_step > 1 else None,
            "replay_buffer_config.prioritized_replay": self.replay_buffer_config.prioritized_replay or None,
            "model.use_lstm": self.model.use_lstm or None,
            "num_replay_buffer_shards": getattr(self, "num_replay_buffer_shards", None),
        }
        for key, value in clashes.items():
            if self.replay_mode == "lockstep" and value is not None:
                yield (
                    f"replay_mode='lockstep': not available with {key}={value!r}: it replays single steps of all "
                    "agents, uniformly. Leave replay_mode at 'independent'."
                )

    def _sequence_problems(self) -> Iterator[str]:
        """Sequences begin with a fragment, because only there the state is known with which the policy acted."""
        buffer, sequences = self.replay_buffer_config, self.sequences
        if sequences is None:
            if buffer.replay_burn_in:
                yield (
                    f"replay_buffer_config.replay_burn_in={buffer.replay_burn_in}: there is no memory to bring up to "
                    "date. Set model.use_lstm=True, or leave it at 0."
                )
            if buffer.zero_init_states:
                yield (
                    "replay_buffer_config.zero_init_states=True: there is no memory that has a state. Set "
                    "model.use_lstm=True, or leave it at False."
                )
            return
        if self.batch_mode == "complete_episodes":
            yield (
                "batch_mode='complete_episodes': the sequences that a network with a memory replays begin with a "
                "fragment, and whole episodes would be too long for them. Set it to 'truncate_episodes'."
            )
        elif self.fragment_length() > sequences.learned:
            yield (
                f"rollout_fragment_length={self.rollout_fragment_length!r}: the sequences of "
                f"model.max_seq_len={sequences.learned} steps that are replayed begin with a fragment, and fragments "
                f"of {self.fragment_length()} steps would leave steps out. Set rollout_fragment_length to at most "
                f"{sequences.learned}, or a larger model.max_seq_len."
            )
        if buffer.capacity < sequences.total:
            yield (
                f"replay_buffer_config.capacity={buffer.capacity}: it holds no sequence of {sequences.total} steps, "
                f"which are replay_burn_in and model.max_seq_len. Set it to {sequences.total} or more."
            )


class ReplayingLearner(Learner[Transitions]):
    """One gradient step per `train_batch_size` rows, in lockstep per batch; a subclass creates `target` in `setup`."""

    learns_from = Transitions
    config: OffPolicyConfig
    target: Target[Any]

    @property
    def minibatch_size(self) -> int:
        """Replayed rows per gradient step, over all learners."""
        return self.config.rows_per_update

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Yield the sampled rows in their order; in lockstep all at once, because their number differs."""
        if self.config.replay_mode != "lockstep":
            return in_order(columns, self.minibatch_size, self.rank, self.world_size)
        everything = max(row_count(columns), self.world_size)
        return shuffled(columns, everything, 1, None, self.rank, self.world_size)

    def set_weights(self, weights: Array) -> None:
        """Overwrite the parameters, and copy them to the target: its old values would pull the new ones back."""
        super().set_weights(weights)
        self.target.copy_source()

    def state(self) -> State:
        """The learner's state with the target network."""
        return super().state() | {"target": self.target.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.target.set_state(state["target"])


class ReplayingAlgorithm(Algorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config: OffPolicyConfig

    def setup(self) -> None:
        """Create the replay memory; ConfigError for what does not go with agents that take turns."""
        config = self.config
        in_turns = any(runner.columns.takes_turns for runner in self.workers.local_worker().runners.values())
        together = {
            f"replay_mode={config.replay_mode!r}": config.replay_mode == "lockstep",
            "model.use_lstm=True": config.sequences is not None,
        }
        if in_turns and (asked := [text for text, is_set in together.items() if is_set]):
            raise ConfigError(
                f"{asked[0]}: not available yet with {config.label} where agents take turns, or policy_mapping_fn is "
                "asked in each episode: their steps are not those of the environment. Leave it out."
            )
        self.memory = ReplayMemory(
            config.replay_buffer_config,
            n_step=config.n_step,
            gamma=config.gamma,
            gammas=self._discounts(),
            seed=config.seed,
            sequences=config.sequences,
            lockstep_envs=config.num_envs_per_worker if config.replay_mode == "lockstep" else 0,
        )
        if config.reads_records:
            self._fill()

    def _fill(self) -> None:
        """Put the recorded episodes into the memory, which keeps the newest steps; a reader may be endless."""
        ((policy_id, runner),) = self.workers.local_worker().runners.items()
        capacity, read = self.config.replay_buffer_config.capacity, 0
        for episode in chain.from_iterable(source.read() for source in recorded_sources(self.config, runner)):
            if read >= capacity and is_function(self.config.input_):
                break
            self.memory.add(Sample({policy_id: episode}, [], len(episode), len(episode)))
            read += len(episode)
        if read >= capacity:
            log.warning("replay_buffer_config.capacity=%d: it holds no more steps of input_ than these.", capacity)

    def change_to(self, config: AlgorithmConfig) -> None:
        """As of every algorithm; the memory forgets those that are gone."""
        super().change_to(config)
        self.memory.keep(self._discounts())

    def _discounts(self) -> dict[PolicyId, float]:
        """By policy that learns."""
        learning = filter(self.config.may_train, self.config.policies)
        return {policy_id: self.config.for_policy(policy_id).gamma for policy_id in learning}

    def training_step(self) -> dict[PolicyId, Stats]:
        """One iteration of the replay flow, or of learning from recorded episodes alone."""
        if self.config.reads_records:
            return replay_recorded(self, self.memory, self.config.rows_per_update)
        return replay(self, self.memory, self.config.updates_due, self.config.rows_per_update)

    def state(self) -> State:
        """The algorithm's state with the replay memory."""
        return super().state() | {"memory": self.memory.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        with restoring("its memory"):
            memory = state["memory"]
            policies = self.workers.local_worker().policy_map
            layouts = {name: (one.observation_layout, one.action_layout) for name, one in policies.items()}
            recurrent = {name: one.initial_state(0) for name, one in policies.items()}
            runners = self.workers.local_worker().runners
            agents = {name: len(runner.columns.agents) for name, runner in runners.items()}
            lockstep = agents if self.config.replay_mode == "lockstep" else None
            check_memory(memory, layouts, self.config.sequences, recurrent, lockstep)
            self.memory.set_state(memory)
