"""A picture of each line's evaluations: how the greedy policy gets better with the steps."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.learn.lines import Line
from benchmarks.learn.report import Record, Results, evaluations_of

SIZE = (6.4, 2.6)  # inches
COLOURS = ("#2f6fab", "#d1722b", "#3f8f5b")


def write_curves(folder: Path, results: Results, lines: list[Line]) -> None:
    """Draw every line that has results into `folder`, and remove the pictures of those that are gone."""
    folder.mkdir(exist_ok=True)
    drawn = {line.document.stem: line for line in lines if curves_of(results.get(line.document.name, {}))}
    for path in folder.glob("*.svg"):
        if path.stem not in drawn:
            path.unlink()
    for name, line in drawn.items():
        with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9}):
            figure = draw(line, results[line.document.name])
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def curves_of(seeds: dict[str, Record]) -> dict[str, Record]:
    """Return the seeds that were trained to their end."""
    return {seed: record for seed, record in sorted(seeds.items()) if "error" not in record}


def draw(line: Line, seeds: dict[str, Record]) -> Figure:
    """Return the rewards of each seed over the steps, with the rewards that are to be reached."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for (seed, record), colour in zip(curves_of(seeds).items(), COLOURS, strict=False):
        evaluations = evaluations_of(record)
        steps, rewards = [each.steps for each in evaluations], [each.reward for each in evaluations]
        axes.plot(steps, rewards, color=colour, linewidth=1.2, label=f"seed {seed}")
    for threshold in line.thresholds:
        axes.plot([0, threshold.steps], [threshold.reward] * 2, color="#888888", linewidth=0.8, linestyle="--")
    axes.set_xlim(0, line.steps)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean reward")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    return figure
