"""The amount of exploration: it decreases with time, or is a constant per worker."""

from __future__ import annotations

from reef.errors import ConfigError
from reef.rollout.exploration.action_box import ActionBox
from reef.schedules import Schedule


def ramp(initial: float, final: float, warmup: int, length: int) -> list[list[float]]:
    """`initial` for `warmup` timesteps, then linear to `final` over `length` timesteps; without `length` at once."""
    last = warmup if length else warmup - 1  # last timestep with the initial value
    return [[step, initial] for step in sorted({0, last}) if 0 <= step <= last] + [[warmup + length, final]]


def levels(schedule: Schedule, actions: ActionBox, per_worker: bool) -> tuple[Schedule, Schedule]:
    """Return the schedule of this worker, and the schedule to report."""
    if not isinstance(per_worker, bool):
        raise ConfigError(f"exploration_config.per_worker={per_worker!r} must be true or false.")
    if not (per_worker and actions.num_workers):
        return schedule, schedule

    def constant(worker_index: int) -> float:
        return float(0.4 ** (1.0 + 7.0 * (worker_index - 1) / max(actions.num_workers - 1, 1)))

    if actions.worker_index > 0:
        own = Schedule(constant(actions.worker_index))
        return own, own
    return Schedule(0.0), Schedule(sum(map(constant, range(1, actions.num_workers + 1))) / actions.num_workers)
