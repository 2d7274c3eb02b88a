"""Several agents and several policies."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from reef.config.groups.group import Group


class MultiAgentSettings(Group):
    """Which policies there are, who acts with which, and which of them learn."""

    group: ClassVar[str] = "multi_agent"

    def multi_agent(self, **settings: Any) -> Self:
        """Set policies and who acts with which."""
        return self.set_group("multi_agent", settings)
