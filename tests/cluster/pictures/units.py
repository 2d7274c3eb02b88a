"""Numbers as Grafana shows them: scaled, with their unit, in few digits."""

from __future__ import annotations

import itertools
import math

Scale = tuple[float, str]  # what a number is divided by, and what is written behind it
COUNTS = [(1.0, ""), (1e3, " K"), (1e6, " M"), (1e9, " G")]
SCALES: dict[str, list[Scale]] = {  # by Grafana's name of the unit, the smallest first
    "short": COUNTS,
    "s": [(1e-6, " µs"), (1e-3, " ms"), (1.0, " s"), (60.0, " min"), (3600.0, " h"), (86400.0, " d")],
    "bytes": [(1024.0**power, f" {name}") for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))],
    "percent": [(1.0, " %")],
    "cps": [(size, f"{letter}/s") for size, letter in COUNTS],
    "ops": [(size, f"{letter}/s") for size, letter in COUNTS],
    "reqps": [(size, f"{letter} req/s") for size, letter in COUNTS],
}


def scale_of(unit: str, largest: float) -> Scale:
    """The scale in which numbers up to `largest` are written."""
    plain = next(scale for scale in SCALES[unit] if scale[0] == 1)
    fitting = [scale for scale in SCALES[unit] if scale[0] <= abs(largest)]
    return fitting[-1] if fitting else plain


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """One number with its unit: three digits, or so many decimals."""
    if not math.isfinite(value):
        return str(value)
    size, suffix = scale_of(unit, value)
    scaled = value / size
    return f"{scaled:.{decimals}f}{suffix}" if decimals is not None else f"{float(f'{scaled:.3g}'):g}{suffix}"


def ticks_written(ticks: list[float], suffix: str) -> list[str]:
    """The numbers along an axis, all with the decimals that the finest of them needs."""
    apart = min((abs(after - before) for before, after in itertools.pairwise(ticks)), default=1.0)
    if apart < 1e-5:
        return [f"{tick:.1e}{suffix}" for tick in ticks]
    exact = (places for places in range(8) if all(abs(round(tick, places) - tick) < apart / 100 for tick in ticks))
    decimals = next(exact, 8)
    return [f"{tick:.{decimals}f}{suffix}" for tick in ticks]
