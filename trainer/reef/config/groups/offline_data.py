"""Recorded experience: reading and writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from reef.config.declaration import setting
from reef.config.groups.group import Group

MEBIBYTE = 1024 * 1024


class OfflineDataSettings(Group):
    """Where experience is read from and written to."""

    group: ClassVar[str] = "offline_data"

    input_: str | list[str] | dict[str, float] | Callable[..., Any] = setting(
        "sampler",
        "Where experience comes from: 'sampler' (the environment), a folder, a glob, files, or {source: probability}.",
        available=False,
    )
    input_config: dict[str, Any] = setting({}, "Arguments of the input.", available=False)
    actions_in_input_normalized: bool = setting(
        False, "Whether recorded actions are already in -1..1.", available=False
    )
    input_evaluation: list[str] = setting(
        ["is", "wis"], "Older form of off_policy_estimation_methods.", available="use off_policy_estimation_methods"
    )
    postprocess_inputs: bool = setting(
        False, "Compute returns and advantages of recorded episodes anew.", available=False
    )
    shuffle_buffer_size: int = setting(
        0, "Size of the buffer in which recorded batches are shuffled.", minimum=0, unit="batches", available=False
    )
    output: str | Callable[..., Any] | None = setting(
        None, "Where experience is written to: 'logdir', a folder or a URI.", available=False
    )
    output_config: dict[str, Any] = setting({}, "Arguments of the output.", available=False)
    output_compress_columns: list[str] = setting(["obs", "new_obs"], "Columns that are compressed.", available=False)
    output_max_file_size: int = setting(
        64 * MEBIBYTE, "Size at which a new file begins.", minimum=1, unit="bytes", available=False
    )
    offline_sampling: bool = setting(False, "Let workers read recorded data as if they sampled.", available=False)

    def offline_data(self, **settings: Any) -> Self:
        """Set where experience is read from and written to."""
        return self.set_group("offline_data", settings)
