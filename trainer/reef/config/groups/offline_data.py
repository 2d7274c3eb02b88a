"""Recorded experience: reading and writing."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from reef.config.groups.group import Group


class OfflineDataSettings(Group):
    """Where experience is read from and written to."""

    group: ClassVar[str] = "offline_data"

    def offline_data(self, **settings: Any) -> Self:
        """Set where experience is read from and written to."""
        return self.set_group("offline_data", settings)
