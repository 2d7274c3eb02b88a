"""What every group of settings can do."""

from __future__ import annotations

from typing import Any, Self

from reef.config.settings import Settings
from reef.errors import ConfigError

NOT_GIVEN: Any = object()


class Group(Settings):
    """A mixin of settings that belong together, with one fluent setter."""

    def set_group(self, group: str, settings: dict[str, Any]) -> Self:
        """Set settings of one group; `NOT_GIVEN` leaves a setting as it is.

        Raises:
            ConfigError: a key is unknown or belongs to another group.
        """
        given = {key: value for key, value in settings.items() if value is not NOT_GIVEN}
        wrong = [
            f"{key!r}: belongs to {self.groups[key]}. Write config.{self.groups[key]}({key}=...)."
            for key in given
            if self.groups.get(key, group) != group
        ]
        if wrong:
            raise ConfigError("\n".join(wrong))
        return self.assign(given)
