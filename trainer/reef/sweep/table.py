"""The trials of a sweep as a table for people, like that of Ray Tune."""

from __future__ import annotations

from collections.abc import Sequence

from reef.sweep.plan import Trial, described
from reef.sweep.record import Record

STATES = {"waiting": "PENDING", "running": "RUNNING", "finished": "TERMINATED", "failed": "ERROR"}
HEADS = ("trial", "status", "parameters", "pid", "iter", "seconds", "steps", "reward")
MOST_ROWS = 20  # those that run come first
LONGEST = 60  # characters of the parameters


def table(record: Record) -> str:
    """A line for each trial: state, parameters, process, iterations, seconds, steps and mean reward."""
    order = ("running", "failed", "finished", "waiting")
    trials = sorted(record.trials.values(), key=lambda trial: order.index(trial.state))
    rows = [HEADS, *(_row(trial, record) for trial in trials[:MOST_ROWS])]
    left_out = len(trials) - MOST_ROWS
    lines = _aligned(rows)
    return "\n".join([*lines, f"  and {left_out} more"] if left_out > 0 else lines)


def _row(trial: Trial, record: Record) -> tuple[str, ...]:
    result = record.newest(trial.name)
    reward = result.get("episode_reward_mean")
    values = described(trial.parameters)
    return (
        trial.name,
        STATES[trial.state],
        values if len(values) <= LONGEST else f"{values[: LONGEST - 3]}...",
        str(result.get("pid", "")) if trial.state == "running" else "",
        str(trial.iteration or ""),
        f"{result['time_total_s']:.1f}" if "time_total_s" in result else "",
        str(trial.timesteps or ""),
        "" if reward is None else f"{reward:.6g}",
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Texts to the left, numbers, which begin after the third column, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if place < 3 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
