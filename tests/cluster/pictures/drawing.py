"""A dashboard as a picture: every panel of its JSON in its place, with what Prometheus answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pictures.answers import Answers, Json, Series, merged
from pictures.canvas import CARD, EDGE, FAINT, INK, Box, Canvas, cut, points, width_of
from pictures.units import scale_of, ticks_written, written

WIDTH, HEAD, MARGIN, GAP = 1200, 58, 12, 8
COLUMNS, COLUMN, ROW = 24, (WIDTH - 2 * MARGIN) / 24, 34  # Grafana's grid
LINES = ["#2f7ed8", "#3f9142", "#e0752d", "#8f4fbf", "#d64550", "#12939a", "#b8860b", "#6b7280", "#d65fa2", "#5a5fd0"]
NAMED = {"green": LINES[1], "blue": LINES[0], "orange": LINES[2], "purple": LINES[3], "red": LINES[4], "text": INK}
LEGEND_LINE, SMALL, LEGEND_LINES = 16, 12, 4


def box_of(panel: Json) -> Box:
    """Where a panel lies, in pixels."""
    place = panel["gridPos"]
    box = Box(MARGIN + place["x"] * COLUMN, HEAD + place["y"] * ROW, place["w"] * COLUMN, place["h"] * ROW)
    return box.within(GAP / 2, GAP / 2, GAP / 2, GAP / 2)


def drawn(board: Json, answers: Answers, empty: Mapping[str, str]) -> Canvas:
    """Draw a dashboard.

    Args:
        board: its JSON.
        answers: what Prometheus found.
        empty: why a panel rightly shows nothing, by its title.
    """
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    canvas = Canvas(WIDTH, HEAD + rows * ROW + MARGIN)
    canvas.write(board["title"], MARGIN + GAP, 16, size=20, weight="bold")
    chosen = "     ".join(f"{label}: {value}" for label, value in answers.chosen.items())
    canvas.write(chosen, MARGIN + GAP + 40 + width_of(board["title"], 20, "bold"), 21, size=14, color=FAINT)
    times = " to ".join(datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") for at in (answers.start, answers.end))
    canvas.write(f"{times} UTC", WIDTH - MARGIN - GAP, 21, size=14, color=FAINT, ha="right")
    for panel in board["panels"]:
        box = box_of(panel)
        if panel["type"] == "row":
            canvas.write(panel["title"], box.left + 4, box.top + box.height / 2, size=15, weight="bold", va="center")
            continue
        canvas.fill(box, CARD, EDGE)
        title = panel["title"]
        size = min(13.0, 13 * (box.width - 20) / width_of(title, 13, "bold"))
        canvas.write(title, box.left + 10, box.top + 15, size=size, weight="bold", va="center")
        inner = box.within(10, 30, 12, 8)
        if answers.lines(panel):
            PAINTERS[panel["type"]](canvas, inner, panel, answers)
        else:
            nothing(canvas, inner, empty.get(panel["title"], ""))
    return canvas


def nothing(canvas: Canvas, box: Box, reason: str) -> None:
    """A panel without any series, and why."""
    middle = box.left + box.width / 2, box.top + box.height / 2
    canvas.write("No data", middle[0], middle[1] - 12, size=15, color=FAINT, ha="center", va="center")
    canvas.write(reason, middle[0], middle[1] + 12, size=12, color=FAINT, ha="center", va="center")


def stat(canvas: Canvas, box: Box, panel: Json, answers: Answers) -> None:
    """The newest values as large numbers, or the name of the series."""
    defaults, series = panel["fieldConfig"]["defaults"], answers.lines(panel)
    by_name = panel["options"].get("textMode") == "name"
    part = box.width / len(series)
    for number, each in enumerate(series):
        text = each.name if by_name else written(each.last, defaults["unit"], defaults.get("decimals"))
        named = len(series) > 1 and not by_name
        size = min(34.0, 34.0 * (part - 8) / max(width_of(text, 34, "bold"), 1))
        middle = box.left + part * (number + 0.5)
        style: dict[str, Any] = {"ha": "center", "va": "center"}
        down = box.top + box.height / 2 - (10 if named else 4)
        canvas.write(text, middle, down, size=size, color=colour_of(defaults, each.last), weight="bold", **style)
        if named:
            canvas.write(each.name, middle, box.bottom - 12, size=12, color=FAINT, **style)


def colour_of(defaults: Json, value: float) -> str:
    """Of a number: fixed, or by the thresholds that it has reached."""
    if "color" in defaults:
        return NAMED[defaults["color"]["fixedColor"]]
    steps = defaults.get("thresholds", {}).get("steps", [{"color": "green", "value": None}])
    return NAMED[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]


def timeseries(canvas: Canvas, box: Box, panel: Json, answers: Answers) -> None:
    """Lines over time with a legend below them."""
    series = answers.lines(panel)
    below = legend(canvas, box, [each.name for each in series])
    field = panel["fieldConfig"]["defaults"]
    times, columns = grid(series, answers)
    tops = [0.0] * len(times)
    stacking = field["custom"].get("stacking", {}).get("mode") == "normal"
    for column in columns if stacking else ():
        column[:] = tops = [
            top + (value if math.isfinite(value) else 0) for top, value in zip(tops, column, strict=True)
        ]
    finite = [value for column in columns for value in column if math.isfinite(value)] or [0.0, 1.0]
    size, suffix = scale_of(field["unit"], max(abs(value) for value in finite))
    bottom, top = bounds(min(finite) / size, max(finite) / size)
    locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=field.get("decimals") == 0, min_n_ticks=2)
    ticks = [float(tick) for tick in locator.tick_values(bottom, top) if bottom <= tick <= top]
    labels = ticks_written(ticks, suffix)
    axes = canvas.axes(box.within(max(width_of(label, SMALL) for label in labels) + 8, 4, 4, below + 24))
    axes.set(xlim=(answers.start, answers.end), ylim=(bottom, top))
    axes.set_yticks(ticks, labels)
    dress(axes, answers)
    floor = [0.0] * len(times)
    for number, column in enumerate(columns):
        color, line = LINES[number % len(LINES)], [value / size for value in column]
        alone = sum(math.isfinite(value) for value in line) == 1
        if stacking:
            axes.fill_between(times, floor, line, color=color, alpha=field["custom"]["fillOpacity"] / 100, linewidth=0)
            line, floor = [math.nan if here == under else here for here, under in zip(line, floor, strict=True)], line
        axes.plot(times, line, color=color, linewidth=1.6, marker="o" if alone else None, markersize=3)


def bounds(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis: from zero on, unless that would flatten the lines."""
    low = 0.0 if 0 <= low < high / 2 or low == high >= 0 else low
    room = (high - low) * 0.08 or 1.0
    return low if low == 0 else low - room, high + room


def grid(series: list[Series], answers: Answers) -> tuple[list[float], list[list[float]]]:
    """The times asked for, and each series at them; not a number where it had no value, so that its line breaks."""
    count = round((answers.end - answers.start) / answers.step) + 1
    times = [answers.start + answers.step * number for number in range(count)]
    columns = []
    for each in series:
        column = [math.nan] * count
        for at, value in each.points:
            column[min(max(round((at - answers.start) / answers.step), 0), count - 1)] = value
        columns.append(column)
    return times, columns


def dress(axes: Axes, answers: Answers) -> None:
    """Write clock times at the axis, and draw thin lines behind the data."""
    wanted = 4 if axes.bbox.width > 250 else 2
    apart = max(60, 60 * round((answers.end - answers.start) / 60 / wanted))
    clock = [float(at) for at in range(math.ceil(answers.start / apart) * apart, int(answers.end) + 1, apart)]
    axes.set_xticks(clock, [datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in clock])
    axes.tick_params(labelsize=points(SMALL), labelcolor=FAINT, length=0, pad=4)
    axes.grid(color=EDGE, linewidth=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(EDGE)


def legend(canvas: Canvas, box: Box, names: list[str]) -> float:
    """Write the names at the foot of the box, in as few lines as they need; returns their height in pixels."""
    lines = flowed(names, box.width)
    top = box.bottom - LEGEND_LINE * len(lines)
    for down, line in enumerate(lines):
        for number, text, left in line:
            middle = top + LEGEND_LINE * (down + 0.5)
            if number is not None:
                canvas.fill(Box(box.left + left, middle - 1, 12, 3), LINES[number % len(LINES)])
            canvas.write(text, box.left + left + 17, middle, size=SMALL, color=INK, va="center")
    return float(LEGEND_LINE * len(lines))


def flowed(names: list[str], width: float) -> list[list[tuple[int | None, str, float]]]:
    """Names with their places in lines of some width: (number of the series, text, pixels from the left)."""
    lines: list[list[tuple[int | None, str, float]]] = [[]]
    left = 0.0
    for number, name in enumerate(names):
        text = cut(name, width - 20, SMALL)
        needed = 17 + width_of(text, SMALL) + 14
        if lines[-1] and left + needed > width + 14:
            if len(lines) == LEGEND_LINES:
                lines[-1][-1] = (None, f"and {len(names) - number + 1} more", lines[-1][-1][2])
                return lines
            lines.append([])
            left = 0.0
        lines[-1].append((number, text, left))
        left += needed
    return lines


def table(canvas: Canvas, box: Box, panel: Json, answers: Answers) -> None:
    """Rows under a header."""
    header, rows = merged(panel, answers)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    width, height = box.width / len(header), 28
    cells = [[written(cell, unit) if isinstance(cell, float) else cell for cell in row] for row in rows]
    for down, row in enumerate([header, *cells][: int(box.height // height)]):
        middle = box.top + height * (down + 0.5)
        canvas.fill(Box(box.left, middle + height / 2, box.width, 1), EDGE)
        for number, cell in enumerate(row):
            color, weight = (FAINT, "bold") if down == 0 else (INK, "normal")
            left = box.left + width * number + 6
            canvas.write(
                cut(cell, width - 12, 13, weight), left, middle, size=13, color=color, weight=weight, va="center"
            )


PAINTERS: dict[str, Callable[[Canvas, Box, Json, Answers], None]] = {
    "stat": stat,
    "timeseries": timeseries,
    "table": table,
}
