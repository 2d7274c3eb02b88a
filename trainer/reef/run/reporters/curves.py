"""Learning curves of several runs in one picture: runs that differ in their seed alone are one line with its spread."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reef.api.keys import STOP_FIELDS
from reef.errors import ConfigError, nearest
from reef.run.metrics import Result
from reef.run.reporters.files import PARAMS, RESULTS, read_results, storage_errors
from reef.run.reporters.reporter import single_settings
from reef.run.reporters.videos import VIDEOS
from reef.run.stopping import lookup
from reef.types import Array

FORMATS = (".png", ".svg", ".pdf", ".html")
POINTS = 200  # at which runs with different steps are compared
MOST_VIDEOS, LARGEST_VIDEO = 12, 16 * 1024 * 1024  # of an HTML page; the size in bytes
LONGEST = 90  # characters of a line's name


@dataclass
class Curve:
    """Runs with equal settings: the points of each, as steps `[N]` and values `[N]`."""

    settings: dict[str, Any]
    runs: list[tuple[Array, Array]] = field(default_factory=list)
    name: str = ""
    videos: list[Path] = field(default_factory=list)  # the newest of each run that has any

    def spread(self) -> tuple[Array, Array, Array, Array]:
        """Steps, and mean, minimum and maximum over the runs, `[P]` each: as far as the shortest run goes."""
        first = max(steps[0] for steps, _ in self.runs)
        last = min(steps[-1] for steps, _ in self.runs)
        if len(self.runs) == 1 or last <= first:
            steps, values = max(self.runs, key=lambda run: len(run[0]))
            return steps, values, values, values
        steps = np.linspace(first, last, POINTS)
        values = np.stack([np.interp(steps, *run) for run in self.runs])
        return steps, values.mean(0), values.min(0), values.max(0)


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder, which may be one, a sweep or hold several; ConfigError where there is none."""
    if (folder / RESULTS).is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob("**/" + RESULTS))
    if not found:
        raise ConfigError(f"{folder}: there is no {RESULTS} in it. Give the folder of a run, a sweep or several runs.")
    return found


def curves_of(folders: Iterable[Path], x: str, y: str) -> list[Curve]:
    """The curves of runs, by their result fields `x` and `y`; runs whose settings differ in the seed alone are one.

    Raises ConfigError where no run has numbers in both fields.
    """
    curves: dict[str, Curve] = {}
    names: list[str] = []
    for folder in folders:
        names.append(str(folder))
        results = list(read_results(folder))
        points = [(lookup(result, x), lookup(result, y)) for result in results]
        known = np.array([point for point in points if None not in point], np.float64)
        if not len(known):
            continue
        settings = _settings(folder)
        curve = curves.setdefault(json.dumps(settings, sort_keys=True), Curve(settings))
        curve.runs.append((known[:, 0], known[:, 1]))
        curve.videos += newest_video(folder, results)
    if not curves:
        meant = "".join(nearest(key, STOP_FIELDS) for key in (x, y) if key not in STOP_FIELDS)
        raise ConfigError(
            f"no result of {', '.join(names)} has numbers in {x!r} and {y!r}.{meant} See docs/results.md."
        )
    _name([*curves.values()])
    return [*curves.values()]


def newest_video(folder: Path, results: Sequence[Result]) -> list[Path]:
    """The newest video of a run, of training or an evaluation, that is still there and not too large for a page."""
    for result in reversed(results):
        for episodes in (result.get("evaluation"), result):
            media = episodes.get("episode_media") if isinstance(episodes, Mapping) else None
            named = media.get(VIDEOS) if isinstance(media, Mapping) else None
            names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
            if videos := [path for name in names if (path := _video(folder, name))]:
                return videos[-1:]
    return []


def _video(folder: Path, name: str) -> Path | None:
    """The file that a result of a run names, or None: results may come from others, and name any file.

    A video is in the folder of the run, or was written to another one with its description beside it.
    """
    try:
        path = (folder / name).resolve(strict=True)
        if path.suffix != ".mp4" or path.stat().st_size > LARGEST_VIDEO:
            return None
        ours = path.is_relative_to(folder.resolve()) or path.with_suffix(".json").is_file()
        return path if path.is_file() and ours else None
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        return None


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / PARAMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a run of another program: a line of its own
        return {"run": folder.name}
    algorithm = folder.name.partition("_")[0] if not folder.name.startswith("trial_") else ""
    return {"algorithm": algorithm} | {key: value for key, value in single_settings(found) if key != "seed"}


def _name(curves: Sequence[Curve]) -> None:
    """Name each curve after the settings in which it differs from others."""
    keys = dict.fromkeys(key for curve in curves for key in curve.settings)
    differing = [key for key in keys if len({json.dumps(curve.settings.get(key)) for curve in curves}) > 1]
    for curve in curves:
        shown = differing or ["algorithm"]
        text = ", ".join(f"{key}={curve.settings.get(key)}" for key in shown)
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        curve.name = text + (f" ({len(curve.runs)} seeds)" if len(curve.runs) > 1 else "")


def draw_curves(curves: Sequence[Curve], file: Path, x: str, y: str) -> None:
    """Draw curves with their spread into a PNG, SVG or PDF, or into an HTML page that needs no other file.

    A page also shows the newest video of each run.

    Raises:
        ConfigError: the file's name ends in none of these, or matplotlib is missing.
        WriteError: it cannot be written.
    """
    if file.suffix not in FORMATS:
        raise ConfigError(f"{file}: expected a name that ends in one of {', '.join(FORMATS)}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"no picture can be drawn: {error}. `pip install matplotlib` brings it.") from error
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        steps, mean, low, high = curve.spread()
        (line,) = axes.plot(steps, mean, marker="o" if len(steps) == 1 else None, label=curve.name)
        axes.fill_between(steps, low, high, alpha=0.2, linewidth=0, color=line.get_color())
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend()
    content = io.BytesIO()
    figure.savefig(content, format="png" if file.suffix == ".html" else file.suffix[1:])
    data = content.getvalue()
    with storage_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_page(data, f"{y} over {x}", curves) if file.suffix == ".html" else data)


def _page(picture: bytes, title: str, curves: Iterable[Curve]) -> bytes:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    shown = f'{head}<h1>{html.escape(title)}</h1><img alt="learning curves" src="{_inline(picture, "image/png")}">'
    videos = [(curve.name, video) for curve in curves for video in curve.videos][:MOST_VIDEOS]
    for name, video in videos:
        text = html.escape(f"{name}: {video.stem.replace('_', ' ')}")
        source = _inline(video.read_bytes(), "video/mp4")
        shown += f'<figure><video controls src="{source}"></video><figcaption>{text}</figcaption></figure>'
    return shown.encode()


def _inline(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
