"""Progress for the person at the keyboard: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from reef.run.metrics import Result
from reef.run.reporters.reporter import Reporter, Run, Summary

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_INTERVAL_S = 1.0  # short iterations would fill a log with lines
BAR_STEPS = 1000


class Console(Reporter):
    """Shows steps, reward, steps per second and the time left. `lines` asks for plain lines on a terminal too."""

    def __init__(self, stream: TextIO | None = None, *, lines: bool = False) -> None:
        self._stream = stream or sys.stdout
        self._lines = lines or not self._stream.isatty()
        self._bar: Progress | None = None
        self._last: Result | None = None
        self._last_shown_s = float("-inf")

    def start(self, run: Run) -> None:
        """Say what is trained and where the results go."""
        super().start(run)
        self._print(f"{run.algorithm} on {run.environment}, results in {run.folder}")
        if run.restored_iteration:
            self._print(f"continuing after iteration {run.restored_iteration}")
        if not self._lines:
            self._bar = bar_on(self._stream)

    def report(self, result: Result) -> None:
        """Show a result; plain lines at most one a second, the last result always."""
        self._last = result
        share = self.run.stop.progress(result)
        if self._bar is not None:
            total = BAR_STEPS if share > 0 else None
            self._bar.update(
                self._bar.task_ids[0], description=describe(result), completed=share * BAR_STEPS, total=total
            )
        elif result["done"] or time.monotonic() - self._last_shown_s >= PLAIN_INTERVAL_S:
            self._last_shown_s = time.monotonic()
            left = time_left(result, share)
            self._print(describe(result) + (f", {left} left" if left else ""))

    def finish(self, summary: Summary | None) -> None:
        """Say how it ended; what to do next is for the command that was given."""
        if self._bar is not None:
            self._bar.stop()
            if self._last is not None:
                self._print(describe(self._last))
        if summary is not None:
            self._print(f"stopped: {summary.reason}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def bar_on(stream: TextIO) -> Progress:
    """A bar that fills towards the first stop condition, or runs on when none can be foreseen."""
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.description}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=Terminal(file=stream),
        transient=True,
        # What workers print appears above the bar; where stderr goes elsewhere, it stays out of this terminal
        redirect_stderr=sys.stderr.isatty(),
    )
    progress.add_task("first iteration", total=None)
    progress.start()
    return progress


def describe(result: Result) -> str:
    """One result in one line."""
    reward, rate = result["episode_reward_mean"], result["num_env_steps_sampled_throughput_per_sec"]
    parts = [
        f"iteration {result['training_iteration']}",
        f"{result['timesteps_total']:,} steps",
        f"reward {reward:.2f}" if reward is not None else "no episode ended yet",
        f"{rate or 0:,.0f} steps/s",
    ]
    evaluated = (result.get("evaluation") or {}).get("episode_reward_mean")
    return ", ".join([*parts, f"evaluation {evaluated:.2f}"] if evaluated is not None else parts)


def time_left(result: Result, share: float) -> str:
    """The time that is left at the pace so far ("4:05"), or "" when it is not known."""
    if not 0 < share < 1:
        return ""
    minutes, seconds = divmod(round(result["time_total_s"] * (1 - share) / share), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
