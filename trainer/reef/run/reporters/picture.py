"""The learning curve as a picture: reward over environment steps."""

from __future__ import annotations

import logging
from pathlib import Path

from reef.run.reporters.files import read_results, storage_errors

log = logging.getLogger(__name__)
PICTURE = "learning_curve.png"


def draw_learning_curve(folder: Path, title: str) -> Path | None:
    """Draw mean, minimum and maximum episode reward from a run's result.json into `learning_curve.png`.

    Returns the picture's path, or None when no episode has ended or matplotlib is missing (with a notice).
    """
    fields = ("timesteps_total", "episode_reward_mean", "episode_reward_min", "episode_reward_max")
    lines = ([result.get(field) for field in fields] for result in read_results(folder))
    points = [line for line in lines if None not in line]
    if not points:
        return None
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        log.warning("no picture of the learning curve: %s. `pip install matplotlib` brings it.", error)
        return None
    steps, mean, low, high = zip(*points, strict=True)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(steps, low, high, alpha=0.2, linewidth=0, label="minimum to maximum")
    axes.plot(steps, mean, marker="o" if len(points) == 1 else None, label="mean")
    axes.set(title=title, xlabel="environment steps", ylabel="episode reward")
    axes.grid(alpha=0.3)
    axes.legend()
    with storage_errors(folder):
        FigureCanvasAgg(figure).print_png(folder / PICTURE)  # type: ignore[no-untyped-call]
    return folder / PICTURE
