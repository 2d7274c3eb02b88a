"""How far one driver carries asynchronous workers: measured to 32, simulated beyond from the costs measured there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.speed.measurements import ACTORS, SCALING, SLOWER
from benchmarks.speed.numbers import Numbers
from benchmarks.speed.simulation import BATCH, FRAGMENT, Costs, Simulation
from benchmarks.speed.tables import row, table

SIMULATED = (32, 100, 300, 1000, 3000, 10_000)


def scaling(numbers: Numbers) -> Iterator[str]:
    """Yield the section of RESULTS.md."""
    yield "## IMPALA with more workers"
    yield ""
    yield f"Each worker has one CartPole whose steps sleep {SCALING['step_s'] * 1000:g} ms, so that many fit on this"
    yield f"machine; fragments of {FRAGMENT} steps, batches of {BATCH}, the learner in the driver's process."
    yield ""
    yield from table("workers", "steps/s learned from", "of linear", "driver's thread busy", "updates behind")
    places = [(workers, str(workers), "workers") for workers in ACTORS]
    places.append((ACTORS[-1], f"{ACTORS[-1]}, steps of {SLOWER['step_s'] * 1000:g} ms", "slower workers"))
    for workers, name, kind in places:
        case, one = f"{workers} {kind}", numbers.rate("scaling", f"1 {kind}")
        rate, stale = numbers.rate("scaling", case), numbers.field("scaling", case, "staleness")
        busy = numbers.spread("scaling", case, lambda run: run["busy_s"] / run["seconds"])
        if rate and one and busy and stale:
            linear = rate.median / one.median / workers
            yield row(name, f"{rate.median:,.0f}", f"{linear:.2f}", f"{busy.median:.0%}", f"{stale.median:.1f}")
    yield ""
    if costs := measured_costs(numbers):
        yield from simulated(costs)


def simulated(costs: Costs) -> Iterator[str]:
    """Yield what one driver carries, by simulation."""
    us = {name: f"{1e6 * seconds:,.0f} us" for name, seconds in vars(costs).items()}
    yield f"What the driver's thread computes, by least squares over these runs: {us['fragment']} for a fragment"
    yield f"({us['request']} of it to ask for it), {us['look']} for each worker whenever it looks for fragments,"
    yield f"{us['update']} for an update, {us['version']} for a version of the weights, and {us['post']} to send it"
    yield "to one worker. The same flow as discrete events with these costs (benchmarks/speed/simulation.py): steps/s"
    yield "learned from, and in brackets the part of linear. Weights are published after each update; after every"
    yield "tenth; then with the learner in a process of its own; and last with other processes that put the batches"
    yield "together (aggregation), which Reef does not offer."
    yield ""
    fragment_s = FRAGMENT * SCALING["step_s"]
    ways = {
        "each update": (costs, 1, False),
        "every tenth": (costs, 10, False),
        "and the learner apart": (costs, 10, True),
        "and aggregation": (costs.aggregated(), 10, True),
    }
    yield from table("workers", *ways, "the driver's time with each update")
    for workers in SIMULATED:
        runs = [Simulation(workers, each, fragment_s, interval, apart=apart) for each, interval, apart in ways.values()]
        for run in runs:
            run.run()
        cells = [f"{run.rate:,.0f} ({run.rate / (workers * FRAGMENT / fragment_s):.2f})" for run in runs]
        yield row(f"{workers:,}", *cells, ", ".join(f"{what} {runs[0].share(what):.0%}" for what in runs[0].seconds))
    yield ""


def measured_costs(numbers: Numbers) -> Costs | None:
    """Return the least squares of what was measured with each number of workers; None without measurements."""
    runs = [(workers, run) for workers in ACTORS for run in numbers.runs("scaling", f"{workers} workers")]
    if not runs:
        return None

    def fitted(names: str, counted: list[tuple[float, float]]) -> tuple[float, float]:
        """Seconds of two kinds of calls, of which each run has so many."""
        seconds = [sum(value for name, value in run["cost_s"].items() if name.startswith(names)) for _, run in runs]
        (first, second), *_ = np.linalg.lstsq(np.array(counted, float), np.array(seconds), rcond=None)
        return max(float(first), 0.0), max(float(second), 0.0)

    def mean(name: str, per: str, among: list[dict]) -> float:
        return sum(run["cost_s"][name] for run in among) / sum(run["calls"][per] for run in among)

    calls = [(workers, run["calls"]) for workers, run in runs]
    looks = [(one["fragment: count"], one["fragment: receive"] * workers) for workers, one in calls]
    fragment, look = fitted("fragment", looks)
    version, post = fitted("version", [(one["version"], one["post"]) for _, one in calls])
    alone = [run for workers, run in runs if workers == 1]  # where few requests are refused
    request = mean("fragment: request", "fragment: count", alone)
    update = mean("update", "update", [run for _, run in runs])
    return Costs(fragment, request, look, update, version, post)
