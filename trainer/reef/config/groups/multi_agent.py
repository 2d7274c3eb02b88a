"""Several agents and several policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from reef.config.declaration import setting
from reef.config.groups.group import Group
from reef.types import DEFAULT_POLICY


class MultiAgentSettings(Group):
    """Which policies there are, who acts with which, and which of them learn."""

    group: ClassVar[str] = "multi_agent"

    policies: list[str] | dict[str, Any] = setting(
        [DEFAULT_POLICY], "Ids of the policies, or {id: specification}.", available=False
    )
    policy_mapping_fn: str | Callable[..., str] | None = setting(
        None, "Function (agent_id, episode, worker) -> policy id.", available=False
    )
    policies_to_train: list[str] | Callable[..., bool] | None = setting(
        None, "Ids of the policies that learn; null is all.", available=False
    )
    policy_map_capacity: int = setting(
        100, "Policies kept in memory; more go to disk.", minimum=1, unit="policies", available=False
    )
    policy_states_are_swappable: bool = setting(
        False, "Swap the state of a policy in place when policies go to disk.", available=False
    )
    observation_fn: str | Callable[..., Any] | None = setting(
        None, "Function that adds to the observation of an agent.", available=False
    )
    count_steps_by: str = setting(
        "env_steps", "What one step of a batch is.", choices=("env_steps", "agent_steps"), available=False
    )
    replay_mode: str = setting(
        "independent",
        "'lockstep' replays all agents of one timestep together.",
        choices=("independent", "lockstep"),
        available=False,
    )
    policy_map_cache: str | None = setting(
        None, "Folder for policies on disk.", available="Reef keeps such policies in the result folder"
    )
    algorithm_config_overrides_per_module: dict[str, Any] = setting(
        {}, "Settings that differ for one policy: {policy id: {key: value}}.", available=False
    )

    def multi_agent(self, **settings: Any) -> Self:
        """Set policies and who acts with which."""
        return self.set_group("multi_agent", settings)
