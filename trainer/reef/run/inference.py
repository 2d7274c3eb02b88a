"""What a person asks of an algorithm between two iterations: its policies, their actions and weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from reef.batch import Rollout, Transitions
from reef.callbacks.sample_batch import SampleBatch
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.learn.learner import Learner
from reef.learn.learners import Learners
from reef.nn.policies import Policy
from reef.nn.weight_files import read_weights
from reef.replay.n_step import NStep
from reef.rollout.seams import Workers
from reef.types import DEFAULT_POLICY, Array, PolicyId


class Inference(ABC):
    """Acts with the policies of this process and changes their weights.

    Weights that were set in a policy by hand are taken over by the learners with the next iteration or publication.
    """

    config: AlgorithmConfig
    workers: Workers
    learners: Learners
    learner_class: ClassVar[type[Learner[Any]]]

    @property
    @abstractmethod
    def timestep(self) -> int:
        """Environment steps sampled so far."""

    @abstractmethod
    def publish_weights(self, *, is_new: bool = True) -> None:
        """Give all workers the learners' weights; `is_new`: they are another version."""

    def get_policy(self, policy_id: PolicyId = DEFAULT_POLICY) -> Policy:
        """The local worker's copy of a policy; KeyError when there is none of that name."""
        return self.workers.local_worker().get_policy(policy_id)

    def compute_single_action(
        self,
        observation: Any,  # a value of the environment's observation space
        state: Sequence[Array] | None = None,  # as the call before returned it; None: an episode begins
        prev_action: Any = None,  # a value of the action space
        prev_reward: float | None = None,
        info: Any = None,  # empty: policies read observations alone
        policy_id: PolicyId = DEFAULT_POLICY,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,  # environment steps, for schedules of the exploration
        *,
        unsquash_action: bool | None = None,
        clip_action: bool | None = None,
    ) -> Any:  # a value of the environment's action space
        """The action for one observation, filtered and unsquashed as in training.

        With `state` or `full_fetch` returns (action, state, extras): give a recurrent policy the state that it returned
        for the step before. It holds the action that was chosen then; `prev_reward`, and `prev_action` where another
        was taken, are written into it for a policy that reads them. None means the setting: `explore` for `explore`,
        `normalize_actions` for `unsquash_action`, `clip_actions` for `clip_action`; for `timestep` the steps so far.
        Raises ConfigError for what is no observation, no state or no action.
        """
        policy = self.get_policy(policy_id)
        found = policy.compute_single_action(
            policy.observed(observation),
            state,
            prev_action,
            prev_reward,
            info,
            explore=explore,
            timestep=timestep,
            unsquash_actions=unsquash_action,
            clip_actions=clip_action,
        )
        return found[0] if state is None and not full_fetch else found

    compute_action = compute_single_action

    def compute_actions(
        self,
        observations: Mapping[Any, Any],  # by agent, or by any other name
        state: Mapping[Any, Sequence[Array] | None] | None = None,
        *,
        prev_action: Mapping[Any, Any] | None = None,
        prev_reward: Mapping[Any, float] | None = None,
        info: Mapping[Any, Any] | None = None,
        policy_id: PolicyId = DEFAULT_POLICY,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,
        unsquash_actions: bool | None = None,
        clip_actions: bool | None = None,
    ) -> Any:
        """The actions of one policy for several observations, by the names that these have.

        As `compute_single_action`; `state`, `prev_action`, `prev_reward` and `info` have the same names. With `state`
        or `full_fetch` returns (actions, states, extras), each by name. Raises ConfigError for what does not fit.
        """
        if not isinstance(observations, Mapping):
            raise ConfigError(
                f"compute_actions takes observations by agent, such as {{'agent_0': obs}}, not a "
                f"{type(observations).__name__}. Use compute_single_action for one observation."
            )
        names, all_of_it = list(observations), full_fetch or state is not None
        if not names:
            return ({}, {}, {}) if all_of_it else {}
        policy = self.get_policy(policy_id)
        given = _of("state", state, names)
        states = None if given is None else [policy.one_state(each) for each in given]
        actions, after, extras = policy.compute_actions(
            np.stack([policy.observed(each) for each in observations.values()]),
            None if states is None else [np.concatenate(part) for part in zip(*states, strict=True)],
            _of("prev_action", prev_action, names),
            _of("prev_reward", prev_reward, names),
            _of("info", info, names),
            explore=explore,
            timestep=timestep,
            unsquash_actions=unsquash_actions,
            clip_actions=clip_actions,
        )
        chosen = {name: policy.plain(action) for name, action in zip(names, actions, strict=True)}
        if not all_of_it:
            return chosen
        after_of = {name: [part[row] for part in after] for row, name in enumerate(names)}
        extras_of = {name: {key: part[row] for key, part in extras.items()} for row, name in enumerate(names)}
        return chosen, after_of, extras_of

    def let_policies_learn(self) -> None:
        """Have `learn_on_batch` of each policy be that of this algorithm."""
        for policy_id, policy in self.workers.local_worker().policy_map.items():
            policy.learn = partial(self.learn_on_batch, policy_id=policy_id)

    def learn_on_batch(self, samples: Any, policy_id: PolicyId = DEFAULT_POLICY) -> dict[str, Any]:
        """Improve one policy on what workers sampled, see `learnable`, and publish its weights."""
        policy, config = self.get_policy(policy_id), self.config
        if config.decentralized:
            raise ConfigError(f"learn_on_batch: {config.label} learns in its rollout workers. Use PPO.")
        if not config.may_train(policy_id):
            raise ConfigError(f"learn_on_batch: {policy_id!r} does not learn: policies_to_train leaves it out.")
        batch = learnable(samples, self.learner_class, config.for_policy(policy_id), policy)
        self.publish_weights()  # which takes over those that were set by hand
        batches: Any = {policy_id: batch}
        updates = self.learners.update(batches, self.timestep)
        self.publish_weights()
        return {"learner_stats": updates[policy_id].stats}

    def get_weights(self) -> dict[PolicyId, dict[str, Array]]:
        """Parameters by policy and name."""
        return {name: policy.get_weights() for name, policy in self.workers.local_worker().policy_map.items()}

    def set_weights(self, weights: dict[PolicyId, dict[str, Array]]) -> None:
        """Overwrite parameters by policy and name, in the learners and all workers; ConfigError where they do not fit.

        The optimizer goes on as it was. Target networks become copies of the new weights.
        """
        if not isinstance(weights, Mapping):
            raise ConfigError(f"set_weights: {type(weights).__name__} is no mapping {{policy id: {{name: array}}}}.")
        for policy_id, named in weights.items():
            self.get_policy(policy_id).set_weights(named)
        self.publish_weights()

    def import_model(
        self, path: str | Path, *, policy_id: PolicyId = DEFAULT_POLICY, names: Mapping[str, str] | None = None
    ) -> None:
        """As `set_weights`, from a safetensors file or a torch `state_dict`, of which no code is run.

        `names` translates names of the file into those of `get_weights()`. Raises CheckpointError for a file that
        cannot be used, ConfigError for weights that do not fit; the algorithm is then as it was.
        """
        self.get_policy(policy_id).import_weights(read_weights(path), names)
        self.publish_weights()


def _of(argument: str, given: Mapping[Any, Any] | None, names: list[Any]) -> list[Any] | None:
    """The values of an argument in the order of the observations; ConfigError where one is missing or too many."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or given.keys() != set(names):
        shown = sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise ConfigError(f"compute_actions: {argument} has {shown}, expected one for each observation: {names}.")
    return [given[name] for name in names]


def learnable(
    samples: Any, learner_class: type[Learner[Any]], config: AlgorithmConfig, policy: Policy
) -> Rollout | Transitions:
    """What a learner of this class takes, of a `SampleBatch`, a `Sample`, or a list of these; else ConfigError."""
    label = config.label
    if policy.initial_state(1):
        raise ConfigError(f"learn_on_batch: {label} has a memory, which learns from sequences. Call algorithm.train().")
    if learner_class.learns_from not in (Rollout, Transitions):
        raise ConfigError(f"learn_on_batch: {label} does not learn from steps in the driver. Call algorithm.train().")
    batch = SampleBatch.concat_samples(samples if isinstance(samples, list | tuple) else [samples])
    if learner_class.learns_from is Rollout:
        return batch.rollout()
    settings: Any = config
    if batch.count < settings.rows_per_update:
        raise ConfigError(
            f"learn_on_batch: {batch.count} rows are fewer than train_batch_size={settings.rows_per_update}, which a "
            "step takes. Sample more."
        )
    return NStep(settings.n_step, settings.gamma).add(batch.rollout())
