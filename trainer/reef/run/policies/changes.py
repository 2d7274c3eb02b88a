"""Adds and removes policies while an algorithm trains."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from reef.config import AlgorithmConfig, PolicySpec
from reef.config.values import plain
from reef.errors import ConfigError, ReefError
from reef.learn.learners import Learners, LocalLearners, learners_of
from reef.nn.policies import Policy
from reef.rollout.worker import RolloutWorker
from reef.run.checkpoint.fit import check_fit
from reef.run.checkpoint.models import weights_of
from reef.run.evaluation import Evaluation
from reef.run.inference import Inference
from reef.types import PolicyId, State, Weights

log = logging.getLogger(__name__)
KEYS = ("policies", "policies_to_train", "policy_mapping_fn")


class ChangingPolicies(Inference):
    """Has the workers, learners and evaluation of an algorithm change to other policies, between two iterations."""

    learners: Learners
    evaluation: Evaluation
    has_new_fixed_weights: bool

    @abstractmethod
    def finish_evaluation(self) -> Any:
        """Wait for an evaluation that is under way beside training: it has the policies from before."""

    def add_policy(
        self,
        policy_id: PolicyId,
        policy_class: type | Callable[..., Any] | str | None = None,
        *,
        policy: Policy | None = None,
        observation_space: Any = None,
        action_space: Any = None,
        config: Mapping[str, Any] | AlgorithmConfig | None = None,
        policy_mapping_fn: str | Callable[..., str] | None = None,
        policies_to_train: Any = None,
    ) -> Policy:
        """Add a policy in all workers and learners, and return that of this process.

        It begins with the weights of `policy`; where that is one of this algorithm's, with its settings and observation
        filter too. Otherwise it begins as `PolicySpec(policy_class, observation_space, action_space, config)` says.
        `policy_mapping_fn` and `policies_to_train` replace the settings of these names; episodes in progress keep their
        policies. A policy that policies_to_train leaves out does not learn.

        Raises ConfigError where policy_mapping_fn is not asked in each episode, or the policy's settings are wrong.
        """
        if policy_id in self.config.policies:
            raise ConfigError(f"add_policy: there is a policy {policy_id!r} already. Choose another id, or remove it.")
        spec = PolicySpec(policy_class, observation_space, action_space, config)
        source = next((name for name, one in self.workers.local_worker().policy_map.items() if one is policy), None)
        if source is not None:
            if spec.to_dict():
                text = "is one of this algorithm's, whose class, spaces and settings the new one has. Leave others out."
                raise ConfigError(f"add_policy: policy={source!r} {text}")
            spec = self.config.spec(source).copy()
            own = self.config.algorithm_config_overrides_per_module.get(source, {})
            spec.config = {**spec.config, **own}
        changed, before = {"policies": {**self._specs(), policy_id: spec}}, self.config
        self.set_policies(changed, policy_mapping_fn, policies_to_train)
        added = self.get_policy(policy_id)
        if policy is not None:
            try:
                added.set_weights(policy.get_weights())
            except ReefError:  # of another network
                self.change_to(before)
                raise
        filters = self.workers.local_worker().filters
        if source is not None and source in filters:
            self.workers.set_filters({policy_id: filters[source].state()})
        self.publish_weights()
        return added

    def remove_policy(
        self,
        policy_id: PolicyId,
        *,
        policy_mapping_fn: str | Callable[..., str] | None = None,
        policies_to_train: Any = None,
    ) -> None:
        """Remove a policy in all workers and learners; where it acts in an episode in progress, new ones begin.

        Raises ConfigError as `add_policy`, KeyError when there is none of that name.
        """
        self.get_policy(policy_id)
        left = {name: spec for name, spec in self._specs().items() if name != policy_id}
        overrides = self.config.algorithm_config_overrides_per_module
        changed: dict[str, Any] = {
            "policies": left,
            "algorithm_config_overrides_per_module": {
                name: own for name, own in overrides.items() if name != policy_id
            },
        }
        if policies_to_train is None and isinstance(self.config.policies_to_train, list):
            policies_to_train = [name for name in self.config.policies_to_train if name != policy_id]
        self.set_policies(changed, policy_mapping_fn, policies_to_train)

    def set_policies(
        self, changed: Mapping[str, Any], policy_mapping_fn: Any = None, policies_to_train: Any = None
    ) -> None:
        """Change these settings of policies everywhere; None leaves the mapping, or what is trained, as it is."""
        self.change_to(self._changed(changed, policy_mapping_fn, policies_to_train))

    def _changed(
        self, changed: Mapping[str, Any], policy_mapping_fn: Any = None, policies_to_train: Any = None
    ) -> AlgorithmConfig:
        """The settings after such a change; ConfigError where it is not possible."""
        given = {"policy_mapping_fn": policy_mapping_fn, "policies_to_train": policies_to_train}
        changed = {**changed, **{key: value for key, value in given.items() if value is not None}}
        config = self.config.copy().assign(changed)
        self._require_change(config)
        return config.checked()

    def change_to(self, config: AlgorithmConfig) -> None:
        """Change to the policies of `config`; nothing has changed where an environment's spaces refuse one."""
        self.finish_evaluation()
        self.workers.set_policies(config)
        local = self.workers.local_worker()
        try:
            local.require_likelihoods()
        except ConfigError:
            self.workers.set_policies(self.config)
            raise
        before, self.config = self.config, config
        self.has_new_fixed_weights = True
        self.learners.set_policies(config, local.spaces)
        self.let_policies_learn()
        learns_now = [n for n in before.policies if config.may_train(n) and not before.may_train(n)]
        self.learners.set_weights({name: local.policy_map[name].flat.numpy() for name in learns_now})
        self.evaluation.set_policies(config)
        self.publish_weights(is_new=False)

    def _require_change(self, config: AlgorithmConfig) -> None:
        """Raise ConfigError where policies cannot change."""
        if not config.policies_may_change:
            raise ConfigError(f"policies cannot change while {config.label} trains. Use PPO, IMPALA, APPO, DQN or SAC.")
        if config.uses_policy_server:
            raise ConfigError("policies cannot change while applications play. Give all of them from the start on.")
        if not (self.config.maps_each_episode and config.maps_each_episode):
            raise ConfigError(
                f"policy_mapping_fn={config.policy_mapping_fn!r}: policies can change only where it is asked in each "
                "episode. From the start on, give a function of (agent_id, episode)."
            )

    def _specs(self) -> dict[PolicyId, PolicySpec]:
        return {name: self.config.spec(name) for name in self.config.policies}

    def fixed_weights(self) -> Weights:
        """The weights of the policies that do not learn, and so have no learner."""
        policies = self.workers.local_worker().policy_map
        return {name: policies[name].flat.numpy() for name in policies if not self.config.may_train(name)}

    def publish_fixed_weights(self) -> None:
        """Give all workers these weights, if they have changed."""
        if self.has_new_fixed_weights:
            self.workers.set_fixed_weights(self.fixed_weights())
        self.has_new_fixed_weights = False

    def restore_fixed_weights(self, state: State) -> None:
        """Take over the weights of policies that do not learn here, or did not in a checkpoint."""
        local, stored = self.workers.local_worker(), state.get("fixed", {})
        fixed = self.fixed_weights()
        if left_out := sorted(fixed.keys() - weights_of(state, fixed).keys()):
            log.warning(
                "the checkpoint has no weights of policies that do not learn: %s; checkpoint_trainable_policies_only "
                "left them out. They keep those that they have here; use set_weights to give them others.",
                ", ".join(left_out),
            )
        local.set_weights(weights_of(state, fixed), local.policy_version)
        if learn_now := {name: weights for name, weights in stored.items() if self.config.may_train(name)}:
            self.learners.set_weights(learn_now)
        self.has_new_fixed_weights = True

    def policies_state(self) -> State:
        """Which policies there are, for a checkpoint."""
        found: State = {key: plain(getattr(self.config, key)) for key in KEYS}
        return found

    def restore_policies(self, state: State) -> None:
        """Change to the policies and the mapping of a checkpoint, if they are others.

        Policies that are here too keep their settings. Raises CheckpointError, and has changed nothing, where the state
        does not fit.
        """
        config = self._config_of(state["policies"]) if "policies" in state else self.config  # older ones have none
        local, learners = self.workers.local_worker(), self.learners
        if set(config.policies) != set(self.config.policies):
            local, learners = self._made_for_comparison(config)
        check_fit(state, learners, local)  # here and not in the learners, who may be processes
        if config is not self.config:
            self.change_to(config)

    def _config_of(self, stored: State) -> AlgorithmConfig:
        """The settings with the policies of a checkpoint; these settings where they are the same."""
        own, specs = self.policies_state(), self._specs()
        others = stored["policies"].keys() != specs.keys()
        mapping = stored["policy_mapping_fn"]
        if mapping == own["policy_mapping_fn"]:
            mapping = None
        elif "<" in str(mapping):
            log.warning(
                "policy_mapping_fn %s was made inside a function and is not in the checkpoint; that of the settings is "
                "used: %s.", mapping, own["policy_mapping_fn"],
            )  # fmt: skip
            mapping = None
        if not others:
            return self.config if mapping is None else self._with_mapping(mapping)
        overrides = self.config.algorithm_config_overrides_per_module
        changed = {
            "policies": {name: specs.get(name, spec) for name, spec in stored["policies"].items()},
            "policies_to_train": stored["policies_to_train"],
            "algorithm_config_overrides_per_module": {
                n: own for n, own in overrides.items() if n in stored["policies"]
            },
        }
        return self._changed(changed, mapping)

    def _with_mapping(self, mapping: Any) -> AlgorithmConfig:
        """The settings with another mapping; these settings where mappings cannot change."""
        config = self.config.copy().assign({"policy_mapping_fn": mapping})
        if not (config.policies_may_change and self.config.maps_each_episode and config.maps_each_episode):
            return self.config
        log.warning("policy_mapping_fn is that of the checkpoint, %s; the settings had another one.", mapping)
        return config.checked()

    def _made_for_comparison(self, config: AlgorithmConfig) -> tuple[RolloutWorker, Learners]:
        """A worker without environments and learners by other policies than those that there are."""
        silent = config.copy().assign({"callbacks": None}).freeze()
        worker = RolloutWorker(silent, with_env=False)
        return worker, LocalLearners(partial(learners_of, self.learner_class), silent, worker.spaces)
