"""What the policy acts in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.settings import Settings
from reef.config.spaces import as_space


class EnvironmentSettings(Settings):
    """The environment, and what happens between it and the policy."""

    environment = GroupSetter("env")

    env: str | type | Callable[..., Any] | None = setting(
        None,
        "A Gymnasium id, 'package.module:Class', a class, or a function of env_config that returns an environment.",
    )
    env_config: dict[str, Any] = setting(
        {},
        "What the environment is made with. A class or function gets it as one argument, together with worker_index, "
        "vector_index, num_workers and recreated_worker; a Gymnasium id gets it as keyword arguments.",
    )
    observation_space: Any = setting(
        None, "The observation space, where the environment's own is not to be used.", convert=as_space
    )
    action_space: Any = setting(
        None, "The action space, where the environment's own is not to be used.", convert=as_space
    )
    clip_rewards: bool | float | list[float] | None = setting(
        None,
        "Rewards seen by the learner: true keeps the sign only, a number v clips to -v..v, two numbers clip to these "
        "bounds. null clips Atari games by sign and nothing else. Reported rewards are never clipped.",
    )
    normalize_actions: bool = setting(
        True, "The policy acts in -1..1, which is stretched to the bounds of a Box action space."
    )
    clip_actions: bool = setting(
        False, "Clip actions to the bounds of the action space before they reach the environment."
    )
    disable_env_checking: bool = setting(False, "Skip the check of spaces, reset and step before training starts.")
    is_atari: bool | None = setting(None, "Whether this is an Atari game; null finds out.")
    auto_wrap_old_gym_envs: bool = setting(
        True,
        "Wrap environments of the old Gym API (reset gives obs, step gives 4); false refuses them and says what to do.",
    )
    action_mask_key: str = setting("action_mask", "Key of a dict observation that holds the valid actions.")
    horizon: int | None = setting(None, "Cut episodes off after this many steps.", minimum=1, unit="steps")
    soft_horizon: bool = setting(False, "At the horizon, go on in the environment without a reset.")
    no_done_at_end: bool = setting(False, "Do not mark the end of an episode as terminal.")

    def problems(self) -> Iterator[str]:
        """A soft horizon needs a horizon; bounds of rewards must leave something between them."""
        yield from super().problems()
        if self.soft_horizon and self.horizon is None:
            yield "soft_horizon=True: needs horizon, the number of steps after which an episode is cut."
        clip = self.clip_rewards
        if isinstance(clip, list) and (len(clip) != 2 or clip[0] >= clip[1]):
            yield f"clip_rewards={clip!r}: expected two bounds, the lower one first, such as [-1.0, 1.0]."
        if isinstance(clip, float) and clip <= 0:
            yield f"clip_rewards={clip!r}: must be larger than 0, or false to clip nothing."
