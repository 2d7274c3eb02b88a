"""The pictures of the dashboards: everything in its place, in Grafana's words, and what is empty says why."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from installation import ROOT
from matplotlib.backends.backend_agg import FigureCanvasAgg
from pictures.answers import Answers, Series, merged
from pictures.canvas import DPI, Canvas, cut, width_of
from pictures.drawing import HEAD, MARGIN, NAMED, ROW, SMALL, WIDTH, box_of, colour_of, drawn, flowed, grid
from pictures.units import SCALES, scale_of, ticks_written, written
from PIL import Image
from prometheus import DASHBOARDS

START, STEP, COUNT = 1_700_000_000.0, 2.0, 150
LARGEST_PICTURE = 150 * 1024
DEFAULTS = {"unit": "short", "custom": {}, "color": {"mode": "fixed", "fixedColor": "text"}}
LABELS = {
    "namespace": "research",
    "job_name": "a-job-with-quite-a-long-name",
    "phase": "Provisioning",
    "reason": "OOMKilled",
    "component": "worker",
    "policy": "default_policy",
    "verb": "PATCH",
    "code": "409",
    "kind": "rltrainingjobs",
    "algorithm": "PPO",
    "environment": "CartPole-v1",
}


def answers(found: dict[str, list[dict[str, Any]]]) -> Answers:
    return Answers(START, START + STEP * (COUNT - 1), STEP, {"Namespace": "All"}, found)


def full(board: dict[str, Any], size: float = 1.0) -> Answers:
    """Three waves as the answer to everything."""

    def wave(number: int) -> dict[str, Any]:
        values = [size * (1 + math.sin(step / 20 + number)) for step in range(COUNT)]
        labels = LABELS | {"job_name": f"{LABELS['job_name']}-{number}", "statistic": f"statistic_{number}"}
        return {"metric": labels, "values": [[START + STEP * step, str(v)] for step, v in enumerate(values)]}

    def moment(number: int) -> dict[str, Any]:
        return {"metric": LABELS | {"job_name": f"job-{number}"}, "value": [START, str(size * (number + 1))]}

    found = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            make, count = (moment, 3 if panel["type"] == "table" else 1) if target.get("instant") else (wave, 3)
            found[f"{panel['id']} {target['refId']}"] = [make(number) for number in range(count)]
    return answers(found)


def texts(canvas: Canvas) -> dict[str, list[Any]]:
    """What is written, with the rectangles in pixels from the upper left corner: left, top, right, bottom."""
    sheet = FigureCanvasAgg(canvas.figure)
    sheet.draw()
    found: dict[str, list[Any]] = {}
    for each in [*canvas.figure.texts, *(label for axes in canvas.figure.axes for label in axes.get_yticklabels())]:
        extent = each.get_window_extent(sheet.get_renderer())
        place = extent.x0, canvas.height - extent.y1, extent.x1, canvas.height - extent.y0
        found.setdefault(each.get_text(), []).append(place)
    return found


@pytest.mark.parametrize("size", [1e-7, 123_456_789.0])
@pytest.mark.parametrize("name", DASHBOARDS)
def test_everything_that_is_written_lies_in_its_panel(name: str, size: float) -> None:
    board = DASHBOARDS[name]
    canvas = drawn(board, full(board, size), {})
    boxes = {panel["id"]: box_of(panel) for panel in board["panels"]}
    found = texts(canvas)
    for text, places in found.items():
        for left, top, right, bottom in places:
            inside = [
                box
                for box in boxes.values()
                if box.left <= left and right <= box.right and box.top <= top and bottom <= box.bottom
            ]
            assert bottom <= HEAD or len(inside) == 1, f"{text!r} at {left:.0f}, {top:.0f} runs out of its panel"
    for panel in board["panels"]:
        box = boxes[panel["id"]]
        assert any(box.left <= place[0] and box.top <= place[1] <= box.top + 30 for place in found[panel["title"]])
    lines = [panel for panel in board["panels"] if panel["type"] == "timeseries"]
    assert len(canvas.figure.axes) == len(lines)
    assert "No data" not in found


def test_an_empty_panel_says_why() -> None:
    board = DASHBOARDS["job"]
    answered = full(board)
    (panel,) = [panel for panel in board["panels"] if panel["title"] == "GPU use"]
    answered.found[f"{panel['id']} A"] = []
    found = texts(drawn(board, answered, {"GPU use": "no GPU was there"}))
    box = box_of(panel)
    for text in ("No data", "no GPU was there"):
        ((left, top, right, bottom),) = found[text]
        assert box.left < left < right < box.right
        assert box.top < top < bottom < box.bottom


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.00123, "s", "1.23 ms"),
        (59.96, "s", "60 s"),
        (90.0, "s", "1.5 min"),
        (81.2 * 1024**2, "bytes", "81.2 MiB"),
        (12345.0, "short", "12.3 K"),
        (999.0, "short", "999"),
        (7.0, "percent", "7 %"),
        (2048.0, "cps", "2.05 K/s"),
        (0.5, "reqps", "0.5 req/s"),
        (math.nan, "short", "nan"),
    ],
)
def test_numbers_have_their_unit(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_every_unit_and_colour_of_the_dashboards_is_known() -> None:
    for board in DASHBOARDS.values():
        for panel in board["panels"]:
            if panel["type"] != "row":
                assert panel["fieldConfig"]["defaults"]["unit"] in SCALES
            if panel["type"] == "stat":
                assert colour_of(panel["fieldConfig"]["defaults"], 1.0)


def test_a_threshold_that_is_reached_gives_its_colour() -> None:
    steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}]
    coloured = [colour_of({"thresholds": {"steps": steps}}, value) for value in (0.0, 1.0, 2.0)]
    assert coloured[0] != coloured[1] == coloured[2]


def test_ticks_can_be_told_apart() -> None:
    size, suffix = scale_of("bytes", 81.2 * 1024**2)
    assert ticks_written([81.0, 81.05, 81.1], suffix) == ["81.00 MiB", "81.05 MiB", "81.10 MiB"]
    assert size == 1024**2
    assert ticks_written([0.0, 20.0, 40.0], " s") == ["0 s", "20 s", "40 s"]
    assert ticks_written([0.0, 2.5, 5.0], "") == ["0.0", "2.5", "5.0"]
    assert ticks_written([0.0, 2e-7], "") == ["0.0e+00", "2.0e-07"]


def test_a_line_breaks_where_there_was_no_value() -> None:
    points = [(START + STEP * number, 1.0) for number in (0, 1, 4)]
    times, (column,) = grid([Series("a", {}, points)], answers({}))
    assert (len(times), len(column)) == (COUNT, COUNT)
    assert [number for number, value in enumerate(column) if value == 1.0] == [0, 1, 4]


def test_a_legend_names_what_grafana_would() -> None:
    panel = {"id": 1, "targets": [{"refId": "A", "legendFormat": "{{job_name}}: {{reason}}"}]}
    metric = {"__name__": "m", "job_name": "one"}
    (series,) = answers({"1 A": [{"metric": metric, "value": [START, "NaN"]}]}).lines(panel)
    assert series.name == "one:"
    assert math.isnan(series.last)


def test_a_long_legend_says_how_much_it_leaves_out() -> None:
    lines = flowed([f"a-name-of-some-length-{number}" for number in range(30)], 400)
    shown = sum(number is not None for line in lines for number, _, _ in line)
    assert len(lines) == 4
    assert lines[-1][-1][1] == f"and {30 - shown} more"
    assert all(left + 17 + width_of(text, SMALL) <= 400 for line in lines for _, text, left in line)
    assert len(flowed(["one", "two"], 400)) == 1


def test_a_text_is_cut_where_it_would_be_too_wide() -> None:
    assert cut("short", 200) == "short"
    text = cut("a text that is much too long for its place", 100)
    assert text.endswith("…")
    assert width_of(text) <= 100


def test_rows_of_a_table_are_merged_and_named() -> None:
    def result(value: float, **labels: str) -> dict[str, Any]:
        return {"metric": labels, "value": [START, str(value)]}

    panel = {
        "id": 1,
        "targets": [{"refId": name, "legendFormat": ""} for name in "AB"],
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Value #A": True}, "renameByName": {"Value #B": "Done"}}},
        ],
    }
    found = {
        "1 A": [result(1, job="b", phase="Failed"), result(1, job="a", phase="Running")],
        "1 B": [result(7, job="a")],
    }
    assert merged(panel, answers(found)) == (["job", "phase", "Done"], [["a", "Running", 7.0], ["b", "Failed", ""]])


def test_the_file_is_small_and_has_the_size_of_the_grid(tmp_path: Path) -> None:
    board = DASHBOARDS["fleet"]
    drawn(board, full(board), {}).save(tmp_path / "fleet.png")
    assert (tmp_path / "fleet.png").stat().st_size < LARGEST_PICTURE
    with Image.open(tmp_path / "fleet.png") as picture:
        assert picture.size == (WIDTH, HEAD + 44 * ROW + MARGIN)
        kept = {color for _, color in picture.convert("RGB").getcolors(1000)}
    for name in NAMED.values():
        wanted = [int(name[place : place + 2], 16) for place in (1, 3, 5)]
        away = min(max(abs(a - b) for a, b in zip(wanted, color, strict=True)) for color in kept)
        assert away < 16, f"{name} is not among the colours of the file"
    assert DPI == 100


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_document_shows_the_dashboards_as_they_are(name: str) -> None:
    board = DASHBOARDS[name]
    text = (ROOT / "docs" / "monitoring.md").read_text()
    (alternative,) = re.findall(rf"!\[(.+)\]\(images/dashboard-{name}\.png\)", text)
    assert len(alternative) > 40, "it says what is to be seen"
    path = ROOT / "docs" / "images" / f"dashboard-{name}.png"
    assert path.stat().st_size < LARGEST_PICTURE
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    with Image.open(path) as picture:
        assert picture.size == (WIDTH, HEAD + rows * ROW + MARGIN), "make pictures draws it anew"
