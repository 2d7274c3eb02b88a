"""The policies that a worker holds: their runners, weights and filters."""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Container

from reef.callbacks.hooks import Hooks
from reef.config import AlgorithmConfig
from reef.envs.agents.turns import TurnEnvs
from reef.envs.by_policy import PolicyEnvs
from reef.math.running import RunningStat
from reef.nn.policies import Policy
from reef.rollout.episodes import EpisodeTracker
from reef.rollout.exploration.likelihoods import require_likelihoods
from reef.rollout.exploration.on_request import OnRequest
from reef.rollout.filters import Filters
from reef.rollout.policies.batch_runner import make_runner
from reef.rollout.policies.policy_map import PolicyMap
from reef.rollout.policy_runner import PolicyRunner
from reef.spaces import PolicySpaces
from reef.types import DEFAULT_POLICY, PolicyId, State, Weights


class WorkerPolicies(ABC):
    """What a `RolloutWorker` acts with."""

    hooks: Hooks
    episodes: EpisodeTracker
    # whose columns they are, also where this worker has no environments
    _envs: PolicyEnvs

    def __init__(self, config: AlgorithmConfig, worker_index: int) -> None:
        self.config, self.worker_index = config, worker_index
        self.runners: dict[PolicyId, PolicyRunner] = {}
        self.policy_map: dict[PolicyId, Policy] = {}
        self.timestep = 0  # environment steps of the whole run, as of the last weights
        self.policy_version = 0
        self._posted: deque[tuple[Weights, int, int]] = deque(maxlen=1)  # until the next fragment begins

    def use_columns(self) -> None:
        """Have a runner for each policy that the environments have columns of; those that are there stay."""
        columns, before = self._envs.columns, self.runners
        self.runners = {
            policy_id: before.get(policy_id) or make_runner(self.config, self.worker_index, own, policy_id)
            for policy_id, own in columns.items()
        }
        self._hold({policy_id: runner.policy for policy_id, runner in self.runners.items()})
        self.preprocessors = {policy_id: policy.preprocessor for policy_id, policy in self.policy_map.items()}
        self.filters = Filters({policy_id: runner.filter for policy_id, runner in self.runners.items()})
        envs = {policy_id: own.envs for policy_id, own in columns.items()}
        self.episodes.set_columns(envs, [policy_id for policy_id, own in columns.items() if own.takes_turns])
        for policy_id in self.policy_map.keys() - before.keys():
            policy = self.runners[policy_id].policy
            policy.chooser = OnRequest(self.runners[policy_id], self.config, lambda: self.timestep)
            self.hooks.call("on_create_policy", policy_id=policy_id, policy=policy)

    def require_likelihoods(self) -> None:
        """Raise ConfigError where a policy that may train cannot learn from the actions of its exploration."""
        for policy_id, runner in self.runners.items():
            if runner.explores and self.config.may_train(policy_id):
                require_likelihoods(self.config.for_policy(policy_id), runner.exploration)

    def _hold(self, policies: dict[PolicyId, Policy]) -> None:
        """Have the map of the policies, which keeps weights in files where there are too many."""
        if isinstance(self.policy_map, PolicyMap):
            self.policy_map.change_to(policies, self.config.may_train)
        elif len(policies) > self.config.policy_map_capacity and self.config.maps_each_episode:
            held = PolicyMap(self.config.policy_map_capacity, self.config.may_train)
            held.change_to(policies, self.config.may_train)
            self.policy_map = held
        else:
            self.policy_map = policies

    def set_policies(self, config: AlgorithmConfig) -> None:
        """Act with the policies and the mapping of `config` from the next episodes on; those in progress go on.

        All begin again where one of them has a policy that is gone.
        """
        assert isinstance(self._envs, TurnEnvs), "a mapping function is asked in each episode"
        is_between = all(runner.obs is not None for runner in self.runners.values())
        again, before = self._envs.set_policies(config), self.runners
        self.config = config
        self.use_columns()
        if again or not is_between:
            self.reset_episodes()
            return
        for policy_id in self.runners.keys() - before.keys():
            self.runners[policy_id].go_on()

    @property
    def spaces(self) -> PolicySpaces:
        """Spaces of observations and actions, by policy."""
        columns = {policy_id: runner.columns for policy_id, runner in self.runners.items()}
        return {policy_id: (own.observation_space, own.action_space) for policy_id, own in columns.items()}

    @property
    def env_spaces(self) -> PolicySpaces:
        """As `spaces`, of what environments give, before a connector."""
        return {policy_id: (own.observation_space, own.action_space) for policy_id, own in self._envs.columns.items()}

    def reset_episodes(self) -> None:
        """Let the next sample start new episodes."""
        for runner in self.runners.values():
            runner.obs = None

    def set_weights(self, weights: Weights, version: int = 0, timestep: int = 0) -> None:
        """Set the published weights of its policies; `timestep` drives exploration schedules."""
        for policy_id in self.policy_map.keys() & weights.keys():
            self.policy_map[policy_id].flat.load(weights[policy_id])
        self.policy_version, self.timestep = version, timestep

    def load_acting_weights(self, weights: Weights) -> None:
        """Set the `acting_weights` of another worker, of the policies that are in both."""
        for policy_id in weights.keys() & self.policy_map.keys():
            self.policy_map[policy_id].load_acting_weights(weights[policy_id])

    def set_acting_weights(self, weights: Weights, version: int, timestep: int) -> None:
        """As `set_weights`, where `weights` are the `acting_weights` of another worker."""
        self.load_acting_weights(weights)
        self.policy_version, self.timestep = version, timestep

    def post_weights(self, weights: Weights, version: int, timestep: int) -> None:
        """As `set_acting_weights` before the next fragment; may be called from another thread during one."""
        self._posted.append((weights, version, timestep))

    def acting_weights(self, policies: Container[PolicyId] | None = None) -> Weights:
        """One flat vector for each of these policies, or of all, of the parameters that it acts with."""
        return {
            name: self.policy_map[name].acting_weights()
            for name in self.policy_map
            if policies is None or name in policies
        }

    def get_weights(self) -> Weights:
        """One flat vector per policy."""
        return {policy_id: self.policy_map[policy_id].flat.numpy() for policy_id in self.policy_map}

    def get_policy(self, policy_id: PolicyId = DEFAULT_POLICY) -> Policy:
        """Its copy of a policy; KeyError when there is none of that name."""
        if policy_id not in self.policy_map:
            raise KeyError(f"PolicyID {policy_id!r} not found in PolicyMap; there is {sorted(self.policy_map)}")
        return self.policy_map[policy_id]

    def filter_deltas(self) -> dict[PolicyId, RunningStat]:
        """The filters' statistics since the last call."""
        return {policy_id: observed.delta() for policy_id, observed in self.filters.items()}

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Replace the observation statistics."""
        for policy_id, own in self.filters.items():
            if policy_id in filters:
                own.set_state(filters[policy_id])
