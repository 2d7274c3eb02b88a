"""The agents of an environment and their policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from reef.callbacks.hooks import guarded
from reef.config.aliases import translate
from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.ignored import frames_of_one_policy
from reef.config.loading import load_callable, load_function
from reef.config.settings import Settings
from reef.config.spaces import as_space, space_problems
from reef.errors import ConfigError
from reef.types import DEFAULT_POLICY, AgentId, PolicyId

PARTS = ("policy_class", "observation_space", "action_space", "config")


class PolicySpec(Settings):
    """One policy, where it differs from the rest: its class, its spaces, its settings."""

    label: ClassVar[str] = "PolicySpec"

    policy_class: str | type | Callable[..., Any] | None = setting(
        None, "What makes the policy of (config, observation_space, action_space), or its path; null: the algorithm's."
    )
    observation_space: Any = setting(None, "null: that of its agents.", convert=as_space("observation_space"))
    action_space: Any = setting(None, "null: that of its agents.", convert=as_space("action_space"))
    config: dict[str, Any] = setting({}, "Settings that differ for this policy, such as lr, gamma and model.")

    def __init__(self, *parts: Any, **settings: Any) -> None:
        """`parts`: policy_class, observation_space, action_space and config, in this order."""
        if len(parts) > len(PARTS):
            raise TypeError(f"PolicySpec takes {', '.join(PARTS)}, but {len(parts)} values were given")
        given = {**dict(zip(PARTS, parts, strict=False)), **settings}
        if isinstance(changed := given.get("config"), Settings):
            given["config"] = changed.changed()
        if given.get("config") is None:
            given.pop("config", None)
        super().__init__(**given)
        if isinstance(self.config, Mapping):
            self.config = translate(self.config)

    def to_dict(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        return {key: value for key, value in super().to_dict().items() if value not in (None, {})}


def as_policies(value: Any) -> Any:
    """The setting `policies` in its one form, {id: PolicySpec}; raises ConfigError for what is no policy."""
    if isinstance(value, Mapping):
        return {policy_id: _as_spec(policy_id, spec) for policy_id, spec in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(each, str) for each in value):
        ids = sorted(value) if isinstance(value, set | frozenset) else list(value)
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ConfigError(f"policies={ids}: {', '.join(twice)} is there twice. Leave one out.")
        return {policy_id: PolicySpec() for policy_id in ids}
    return value


def _as_spec(policy_id: object, given: Any) -> PolicySpec:
    if isinstance(given, PolicySpec):
        return given
    try:
        if given is None or isinstance(given, Mapping):
            return PolicySpec(**(given or {}))
        if isinstance(given, tuple | list) and len(given) == len(PARTS):
            return PolicySpec(*given)
    except ConfigError as error:
        raise ConfigError(f"policies: {policy_id!r}: {error}") from error
    raise ConfigError(
        f"policies: {policy_id!r}: {given!r} is no policy. Give a PolicySpec, a mapping of its settings, null, or the "
        f"tuple ({', '.join(PARTS)})."
    )


def _translated(value: Any) -> Any:
    """Settings by policy id, under their present names."""
    if not isinstance(value, Mapping):
        return value
    return {name: translate(own) if isinstance(own, Mapping) else own for name, own in value.items()}


class MultiAgentSettings(Settings):
    """Which policies there are, which agents act with each, and which of them learn."""

    multi_agent = GroupSetter()
    # settings of the group "training" that all policies share
    of_all_policies: ClassVar[tuple[str, ...]] = (
        "train_batch_size",
        "train_batch_size_per_learner",
        "max_requests_in_flight_per_sampler_worker",
    )
    # settings of other groups that a policy may have of its own
    of_one_policy: ClassVar[tuple[str, ...]] = (
        "exploration_config",
        "action_mask_key",
        "normalize_actions",
        "clip_actions",
        "clip_rewards",
        "env_to_module_connector",
        "module_to_env_connector",
    )

    policies: list[str] | dict[str, PolicySpec] = setting(
        {DEFAULT_POLICY: PolicySpec()},
        "Ids of the policies; as a mapping with what each has of its own: policy_class, observation_space, "
        "action_space, config.",
        convert=as_policies,
    )
    policy_mapping_fn: str | dict[str, str] | Callable[..., str] | None = setting(
        None,
        "Which policy an agent acts with: {agent id: policy id}; a function of the agent id, or its path; or one of "
        "(agent id, episode), which is asked in each episode. null: the policy with the agent's own id, else the "
        "first one.",
    )
    policies_to_train: list[str] | str | Callable[..., Any] | None = setting(
        None,
        "Ids of the policies that learn, or a function (policy_id, batch), or its path, that says for each batch "
        "whether its policy learns from it; null is all.",
    )
    policy_map_capacity: int = setting(
        100,
        "Where policy_mapping_fn is asked in each episode: how many policies a process has in memory. The weights of "
        "others that do not learn are in temporary files, those used longest ago first.",
        minimum=1,
        unit="policies",
    )
    count_steps_by: str = setting(
        "env_steps",
        "What batches, schedules and the minima of an iteration count: 'env_steps', or 'agent_steps', the steps of "
        "all agents.",
        choices=("env_steps", "agent_steps"),
    )
    replay_mode: str = setting(
        "independent",
        "'independent' draws replayed steps for each policy; 'lockstep' draws whole steps of the environment, of which "
        "all policies get those of their agents.",
        choices=("independent", "lockstep"),
    )
    observation_fn: str | Callable[..., Any] | None = setting(
        None,
        "A function, or its path, that gets the observations of all agents, {agent id: observation}, and returns those "
        "that the policies get: for a critic that sees what others see. Spaces that it changes are given in policies.",
        called_with=("agent_obs",),
    )
    algorithm_config_overrides_per_module: dict[str, dict[str, Any]] = setting(
        {}, "By policy id: settings that differ for it, as config in policies does.", convert=_translated
    )

    def problems(self) -> Iterator[str]:
        """Contradictions of these settings."""
        yield from super().problems()
        wrong = [*self._about_mapping()]
        yield from wrong or self._without_effect()
        yield from self._about_training()
        if not self.policies or "" in self.policies:
            yield f"policies={list(self.policies)}: expected at least one id, and none that is empty."
        named = [("policies_to_train", each) for each in self._ids_to_train or ()]
        if isinstance(self.policy_mapping_fn, dict):
            named += [(f"policy_mapping_fn: {agent!r}", each) for agent, each in self.policy_mapping_fn.items()]
        named += [
            ("algorithm_config_overrides_per_module", each) for each in self.algorithm_config_overrides_per_module
        ]
        for key, policy_id in named:
            if policy_id not in self.policies:
                yield f"{key}: {policy_id!r} is not among policies={list(self.policies)}."
        for policy_id in self.policies:
            yield from (f"policies: {policy_id!r}: {text}" for text in self._own_problems(policy_id))

    def _without_effect(self) -> Iterator[str]:
        if self.replay_mode == "lockstep" and "replay_buffer_config" not in self.groups:
            yield f"replay_mode='lockstep' has no effect: {self.label} replays nothing. Leave it at 'independent'."
        if self.policy_map_capacity != self.declared["policy_map_capacity"].default and not self.maps_each_episode:
            yield (
                f"policy_map_capacity={self.policy_map_capacity} has no effect: policy_mapping_fn is not asked in each "
                "episode, so that all policies act. Leave it out, or give a function of (agent_id, episode)."
            )
        if self.count_steps_by == "agent_steps" and getattr(self, "rollout_fragment_length", None) == "auto":
            yield (
                "rollout_fragment_length='auto': count_steps_by='agent_steps' counts the steps of agents that come and "
                "go, so that no length fills the train batch exactly. Give a number of steps."
            )

    def _about_mapping(self) -> Iterator[str]:
        try:
            if isinstance(self.policy_mapping_fn, str):
                _loaded(self.policy_mapping_fn)
        except ConfigError as error:
            yield f"{error} By agent the policy's id is given as a mapping, {{agent id: policy id}}."

    def _about_training(self) -> Iterator[str]:
        if self.policies_to_train == []:
            yield "policies_to_train=[]: nothing would learn. Name at least one id, or null for all."
        elif self.policies_to_train is not None and self._ids_to_train is None:
            try:
                load_function(self.policies_to_train, "policies_to_train", "policy_id", "batch")
            except ConfigError as error:
                yield str(error)

    def _own_problems(self, policy_id: PolicyId) -> Iterator[str]:
        """What is wrong with what a policy has of its own."""
        spec = self.spec(policy_id)
        wrong = [*spec.wrong_values()]
        for key in ("observation_space", "action_space"):
            wrong += space_problems(key, getattr(spec, key))
        yield from wrong
        own = {} if wrong else self.own_settings(policy_id)
        if not own:
            return
        try:
            self.check_keys(own)
        except ConfigError as error:
            yield from (f"config.{problem}" for problem in str(error).splitlines())
            return
        shared = [key for key in own if not self.may_be_of_one_policy(key)]
        for key in shared:
            yield f"config.{key}={own[key]!r} has no effect for one policy: all policies share it. Set it for all."
        if not shared:
            changed = self.for_policy(policy_id)
            yield from frames_of_one_policy(changed.model, self.for_policy(None).model)
            known = {*self.for_policy(None).problems()}
            found = [*changed.wrong_values()] or [*changed.problems()]
            yield from (f"config.{problem}" for problem in found if problem not in known)

    @classmethod
    def may_be_of_one_policy(cls, key: str) -> bool:
        """Whether a setting has an effect for one policy alone."""
        return key in cls.of_one_policy or (cls.groups.get(key) == "training" and key not in cls.of_all_policies)

    def for_policy(self, policy_id: PolicyId | None) -> Any:
        """The settings of one policy; None: of one without any of its own."""
        raise NotImplementedError

    def spec(self, policy_id: PolicyId) -> PolicySpec:
        """What a policy has of its own, as it was given."""
        found = self.policies.get(policy_id) if isinstance(self.policies, dict) else None
        return found if isinstance(found, PolicySpec) else PolicySpec()

    def own_settings(self, policy_id: PolicyId) -> dict[str, Any]:
        """The settings that differ for one policy, from either place where they may be given."""
        return {**self.spec(policy_id).config, **self.algorithm_config_overrides_per_module.get(policy_id, {})}

    def has_own_network(self, policy_id: PolicyId) -> bool:
        """Whether a policy's own settings say which class makes its network."""
        spec = self.spec(policy_id)
        model = self.own_settings(policy_id).get("model") if isinstance(spec.config, Mapping) else None
        has_model = isinstance(model, Mapping) and bool(model.get("custom_model"))
        return has_model or spec.policy_class is not None

    @property
    def maps_each_episode(self) -> bool:
        """Whether the agents' policies are chosen in each episode."""
        given = self.policy_mapping_fn
        return not (given is None or isinstance(given, dict)) and _count(_loaded(given)) > 1

    def policy_of(self, agent: AgentId, episode: Any = None) -> PolicyId:
        """The policy an agent acts with, in an episode.

        Raises ConfigError for one that is not there, CallbackError where `policy_mapping_fn` raises.
        """
        given = self.policy_mapping_fn
        if given is None:
            policy_id = str(agent) if str(agent) in self.policies else next(iter(self.policies))
        elif isinstance(given, dict):
            policy_id = given.get(str(agent), "")
        else:
            ask = _loaded(given)
            given_to_it = (agent, episode, None)[: max(_count(ask), 1)]
            policy_id = guarded("policy_mapping_fn", ask, *given_to_it)
        if not (isinstance(policy_id, str) and policy_id in self.policies):
            wrong = f"PolicyID {policy_id!r}, which agent {agent!r} acts with, not found in PolicyMap"
            wrong = wrong if policy_id else f"there is no policy for agent {agent!r}"
            raise ConfigError(f"policy_mapping_fn: {wrong}. Give the agent one of policies={list(self.policies)}.")
        return policy_id

    @property
    def _ids_to_train(self) -> list[str] | None:
        return self.policies_to_train if isinstance(self.policies_to_train, list) else None

    def may_train(self, policy_id: PolicyId) -> bool:
        """Whether a policy may learn from some batch, and so needs a learner."""
        return policy_id in self.policies and (self._ids_to_train is None or policy_id in self._ids_to_train)

    def trains(self, policy_id: PolicyId, batch: Any) -> bool:
        """Whether a policy learns from a batch."""
        if self.policies_to_train is None or self._ids_to_train is not None or policy_id not in self.policies:
            return self.may_train(policy_id)
        return bool(_loaded(self.policies_to_train)(policy_id, batch))


def _loaded(given: Any) -> Callable[..., Any]:
    return load_callable(given, "policy_mapping_fn", "a function of (agent_id), or of (agent_id, episode)")


def _count(function: Callable[..., Any]) -> int:
    """How many of three positional arguments a function takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 3
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
