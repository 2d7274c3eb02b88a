"""A sheet measured in pixels from its upper left corner, on matplotlib."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath
from PIL import Image

DPI = 100
INK, FAINT, PAPER, CARD, EDGE = "#1f2329", "#6b7280", "#eef0f3", "#ffffff", "#d5d9df"
COLOURS = 256  # of the finished picture: text and thin lines need no more


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def within(self, left: float = 0, top: float = 0, right: float = 0, bottom: float = 0) -> Box:
        """What is left of it without its margins."""
        return Box(self.left + left, self.top + top, self.width - left - right, self.height - top - bottom)


class Canvas:
    """The sheet.

    Args:
        width: in pixels.
        height: in pixels.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)

    def write(self, text: str, left: float, top: float, *, size: float = 12, color: str = INK, **style: Any) -> None:
        """Put text somewhere; its size is in pixels, and by default the place is its upper left corner."""
        given = {"va": "top", **style}
        place = left / self.width, 1 - top / self.height
        self.figure.text(*place, text, fontsize=points(size), color=color, parse_math=False, **given)

    def fill(self, box: Box, color: str, edge: str = "none") -> None:
        """Draw a rectangle."""
        x, y, w, h = self._of_the_whole(box)
        transform = self.figure.transFigure
        self.figure.add_artist(Rectangle((x, y), w, h, facecolor=color, edgecolor=edge, transform=transform, zorder=-1))

    def axes(self, box: Box) -> Axes:
        """Axes whose lines lie in the box; what is written at them lies outside."""
        return self.figure.add_axes(self._of_the_whole(box), facecolor="none")

    def _of_the_whole(self, box: Box) -> tuple[float, float, float, float]:
        return (
            box.left / self.width,
            1 - box.bottom / self.height,
            box.width / self.width,
            box.height / self.height,
        )

    def save(self, path: Path) -> None:
        """Write a PNG of few colours."""
        sheet = FigureCanvasAgg(self.figure)
        sheet.draw()
        image = Image.frombuffer("RGBA", sheet.get_width_height(), bytes(sheet.buffer_rgba())).convert("RGB")
        image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def points(pixels: float) -> float:
    """A font's size as matplotlib takes it."""
    return pixels * 72 / DPI


@functools.cache
def width_of(text: str, size: float = 12, weight: str = "normal") -> float:
    """How many pixels a line of text takes."""
    if not text.strip():
        return 0.0
    path = TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight), usetex=False)
    return float(path.get_extents().width)


def cut(text: str, width: float, size: float = 12, weight: str = "normal") -> str:
    """A line of text with its end left out where it would be wider."""
    if width_of(text, size, weight) <= width:
        return text
    while text and width_of(f"{text}…", size, weight) > width:
        text = text[:-1]
    return f"{text}…"
