"""Running and watching: results, checkpoints, logs, callbacks, recorded experience."""

from __future__ import annotations

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.settings import Settings


class ReportingSettings(Settings):
    """What a result covers."""

    reporting = GroupSetter()

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


class CheckpointingSettings(Settings):
    """What a checkpoint holds beside the state needed to go on."""

    checkpointing = GroupSetter()


class DebuggingSettings(Settings):
    """Logs and reproducibility."""

    debugging = GroupSetter()

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


class CallbackSettings(Settings):
    """Your own code at certain moments of training."""

    callbacks = GroupSetter("callbacks")


class OfflineDataSettings(Settings):
    """Where experience is read from and written to."""

    offline_data = GroupSetter()


class ExperimentalSettings(Settings):
    """Switches that older configurations carry."""

    experimental = GroupSetter()
