"""Several agents and several policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.loading import load
from reef.config.settings import Settings
from reef.errors import ConfigError
from reef.types import DEFAULT_POLICY, AgentId, PolicyId


class MultiAgentSettings(Settings):
    """Which policies there are, who acts with which, and which of them learn."""

    multi_agent = GroupSetter()

    policies: list[str] = setting([DEFAULT_POLICY], "Ids of the policies.")
    policy_mapping_fn: str | dict[str, str] | Callable[..., str] | None = setting(
        None,
        "Which policy an agent acts with: a function (agent id, episode, worker), its path, or {agent id: policy id}. "
        "null: the policy with the agent's own id, else the first one.",
    )
    policies_to_train: list[str] | None = setting(None, "Ids of the policies that learn; null is all.")

    def problems(self) -> Iterator[str]:
        """Contradictions of these settings."""
        yield from super().problems()
        if not self.policies:
            yield "policies=[]: expected at least one id."
        if self.policies_to_train == []:
            yield "policies_to_train=[]: nothing would learn. Name at least one id, or null for all."
        mapping = self.policy_mapping_fn if isinstance(self.policy_mapping_fn, dict) else {}
        for agent, policy_id in mapping.items():
            if policy_id not in self.policies:
                yield f"policy_mapping_fn: {agent!r}: {policy_id!r} is not among policies={self.policies}."
        for policy_id in self.policies_to_train or ():
            if policy_id not in self.policies:
                yield f"policies_to_train: {policy_id!r} is not among policies={self.policies}."

    def policy_of(self, agent: AgentId) -> PolicyId:
        """The policy an agent acts with, asked for once; ConfigError for one that is not there."""
        given = self.policy_mapping_fn
        if given is None:
            policy_id = str(agent) if str(agent) in self.policies else self.policies[0]
        elif isinstance(given, dict):
            policy_id = given.get(str(agent), "")
        else:
            ask = load(given, "policy_mapping_fn") if isinstance(given, str) else given
            arguments = (agent, None, None)[: max(_count(ask), 1)]
            policy_id = ask(*arguments)
        if policy_id not in self.policies:
            raise ConfigError(
                f"policy_mapping_fn: PolicyID {policy_id!r}, which agent {agent!r} acts with, not found in "
                f"PolicyMap; there is {sorted(self.policies)}. Add it to policies."
            )
        return policy_id

    def trains(self, policy_id: PolicyId) -> bool:
        """Whether a policy learns."""
        return self.policies_to_train is None or policy_id in self.policies_to_train


def _count(function: Callable[..., Any]) -> int:
    """How many of three positional arguments a function takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 3
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
