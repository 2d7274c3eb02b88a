"""Running and watching: results, checkpoints, logs, callbacks."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from reef.config.declaration import setting
from reef.config.groups.group import NOT_GIVEN, Group


class ReportingSettings(Group):
    """What a result covers."""

    group: ClassVar[str] = "reporting"

    keep_per_episode_custom_metrics: bool = setting(
        False, "Report custom metrics as lists of all episodes instead of mean, minimum and maximum."
    )
    metrics_num_episodes_for_smoothing: int = setting(
        100,
        "Newest episodes that the reported means cover; all of an iteration where it had more.",
        minimum=1,
        unit="episodes",
    )
    min_time_s_per_iteration: float | None = setting(
        None, "Repeat the training step until an iteration took this long.", minimum=0.0, unit="seconds"
    )
    min_train_timesteps_per_iteration: int | None = setting(
        0, "Repeat the training step until this many steps were trained on.", minimum=0, unit="steps"
    )
    min_sample_timesteps_per_iteration: int | None = setting(
        0, "Repeat the training step until this many steps were sampled.", minimum=0, unit="steps"
    )

    def reporting(self, **settings: Any) -> Self:
        """Set what a result covers."""
        return self.set_group("reporting", settings)


class CheckpointingSettings(Group):
    """What a checkpoint holds beside the state needed to go on."""

    group: ClassVar[str] = "checkpointing"

    def checkpointing(self, **settings: Any) -> Self:
        """Set what a checkpoint holds."""
        return self.set_group("checkpointing", settings)


class DebuggingSettings(Group):
    """Logs and reproducibility."""

    group: ClassVar[str] = "debugging"

    log_level: str | None = setting(
        None,
        "How much Reef writes to the log, in the algorithm's process and in its workers; null leaves it to -v and to "
        "Python's logging.",
        choices=(None, "DEBUG", "INFO", "WARN", "ERROR"),
    )
    log_sys_usage: bool = setting(
        True, "Report use of CPU, memory and the GPU of the algorithm's process in every result."
    )
    seed: int | None = setting(
        None,
        "Seed of everything random; workers and environments derive theirs from it. null draws one.",
        minimum=0,
        maximum=2**53,
    )

    def debugging(self, **settings: Any) -> Self:
        """Set logs and the seed."""
        return self.set_group("debugging", settings)


class CallbackSettings(Group):
    """Your own code at certain moments of training."""

    group: ClassVar[str] = "callbacks"

    def callbacks(self, callbacks: Any = NOT_GIVEN) -> Self:
        """Set the class of callbacks."""
        return self.set_group("callbacks", {"callbacks": callbacks})


class ExperimentalSettings(Group):
    """Switches that older configurations carry."""

    group: ClassVar[str] = "experimental"

    def experimental(self, **settings: Any) -> Self:
        """Set experimental switches."""
        return self.set_group("experimental", settings)
