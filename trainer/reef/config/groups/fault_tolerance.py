"""What happens when a worker or an environment fails."""

from __future__ import annotations

from collections.abc import Iterator

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.settings import Settings


class FaultToleranceSettings(Settings):
    """Failures of workers and environments. By default the first failure of a worker ends the run with its error."""

    fault_tolerance = GroupSetter()

    ignore_worker_failures: bool = setting(False, "Go on without failed workers as long as one is left.")
    recreate_failed_workers: bool = setting(False, "Start a failed worker again, with the same index.")
    restart_failed_sub_environments: bool = setting(
        False,
        "Make only a failed environment again, up to 5 times without a step that works; the other environments of the "
        "worker keep their episodes.",
    )
    num_consecutive_worker_failures_tolerance: int = setting(
        100, "Failures in a row, over all workers, after which the run ends.", minimum=0, unit="failures"
    )
    max_num_worker_restarts: int = setting(
        1000, "How often one worker may be started again.", minimum=0, unit="restarts"
    )
    delay_between_worker_restarts_s: float = setting(
        60.0,
        "Longest pause between two starts of one worker. The first restart comes at once; a worker that is lost again "
        "within this time waits for 1, 2, 4, ... seconds after its last start, unless no other worker is left.",
        minimum=0.0,
        unit="seconds",
    )
    worker_health_probe_timeout_s: float = setting(
        60.0,
        "How long a worker has to answer whether it is alive; after it the worker counts as failed. Idle workers are "
        "asked before the first round and after each failure of one; a replacement has as long to take the weights.",
        above=0.0,
        unit="seconds",
    )
    worker_restore_timeout_s: float = setting(
        1800.0, "How long a restarted worker has until it is ready.", above=0.0, unit="seconds"
    )
    sample_timeout_s: float = setting(
        300.0,
        "How long one sample of a worker may take; after it the worker counts as failed. Raise it for environments so "
        "slow that rollout_fragment_length steps take longer. Without workers: how long one step or reset of all its "
        "environments may take in this process, which then ends with exit code 1.",
        above=0.0,
        unit="seconds",
    )

    def problems(self) -> Iterator[str]:
        """Ignoring and recreating exclude each other."""
        yield from super().problems()
        if self.ignore_worker_failures and self.recreate_failed_workers:
            yield (
                "ignore_worker_failures=True, recreate_failed_workers=True: they exclude each other. Keep "
                "recreate_failed_workers to replace failed workers, or ignore_worker_failures to go on without them."
            )
