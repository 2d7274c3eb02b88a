"""The section of benchmarks/RESULTS.md about many jobs, and what is to be reached."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from statistics import median
from typing import Any

from benchmarks.speed.numbers import Numbers
from benchmarks.speed.tables import row, table
from benchmarks.speed.targets import Target

HEALERS = {
    "worker pod": "a worker pod fails: its pool's Deployment makes the next",
    "head pod": "a head pod fails: its batch Job makes the next",
    "Deployment": "a pool's Deployment is deleted: the operator makes it again",
}
REACTION_S = {"300": 1.0, "1000": 2.0}  # by the number of jobs that train
WARM = 2  # rounds after which memory is to stay as it is
VERBS = ("create", "patch", "delete", "get", "list")


def scale_targets(numbers: Numbers) -> Iterator[Target]:
    """Yield what the operator is to reach with many jobs; nothing where it was not measured."""
    for run in numbers.runs("scale", "reef"):
        jobs, rounds = run["jobs"], run["rounds"]
        name = f"operator, {jobs} jobs at once"
        rate = min(each["jobs_per_s"] for each in rounds)
        yield Target(f"{name}: all objects made, slowest of {len(rounds)} rounds", 4.0, rate, unit=" jobs/s")
        for part, text in HEALERS.items():
            late = _p99(run["replaced_s"][part])
            yield Target(f"{name}: {text}, p99", 2.0, late, at_most=True, unit=" s")
        late = max(_p99(run["status_lag_s"]), *(_p99(each["status_lag_s"]) for each in rounds))
        yield Target(f"{name}: pod changed to status, p99, worst round", 10.0, late, at_most=True, unit=" s")
        progress = _p99(run["steady"]["progress_lag_s"])
        yield Target(f"{name}: iteration ended to status, p99", 10.0, progress, at_most=True, unit=" s")
        for many, found in run.get("reactions", {}).items():
            for what, late in found.items():
                text = f"operator, {many} jobs train: {what} to its first action, p99"
                yield Target(text, REACTION_S.get(many, 2.0), _p99(late), at_most=True, unit=" s")
        peak = max(each["peak_mb"] for each in rounds)
        yield Target(f"{name}: the operator's memory", 300.0, peak, at_most=True, unit=" MB")
        yield Target(f"{name}: its memory, last round / round {WARM}", 1.05, _growth(rounds), at_most=True)


def scale(numbers: Numbers) -> Iterator[str]:
    """Yield the section."""
    yield "## Operator: many jobs at once"
    yield ""
    for run in numbers.runs("scale", "reef"):
        workers = numbers.results["parts"]["scale"]["cases"]["reef"]["args"]["workers"]
        yield f"`make bench-scale`: {run['jobs']} jobs, each a head and {workers} worker, created at once on a"
        yield "Kubernetes whose API server, etcd, controllers and scheduler share this machine with the operator and"
        yield "with what plays the kubelets. Once all jobs have run, all are deleted; then comes the next round."
        yield ""
        yield from _rounds(run["rounds"])
        yield from _late(run)
        yield from _writes(run)


def looks(numbers: Numbers) -> Iterator[str]:
    """Yield the section about a look that finds nothing to do."""
    milliseconds = numbers.field("looks", "reef", "look_ms")
    if milliseconds is None:
        return
    run = numbers.runs("looks", "reef")[0]
    yield "## Operator: one look at an idle job"
    yield ""
    yield f"`python -m benchmarks.speed --only looks`: {run['jobs']:,} jobs that train, from what is observed to the"
    yield f"empty plan, without an API server. Median: {milliseconds.text(3)} ms of CPU for a look, which"
    yield f"validates this number of documents: {run['validations']}."
    yield ""


def _rounds(rounds: list[dict[str, Any]]) -> Iterator[str]:
    titles = ("all objects made, s", "jobs/s", "all run, s", "all gone, s", "status late, p99 s", "operator's CPU, s")
    yield from table("round", *titles, "memory: peak, MB", "after it, MB", "load")
    for number, each in enumerate(rounds, start=1):
        keys = ("complete_s", "jobs_per_s", "running_s", "deleted_s")
        values = [f"{each[key]:.1f}" for key in keys]
        late = f"{_p99(each['status_lag_s']):.2f}"
        memory = [f"{each[key]:.0f}" for key in ("peak_mb", "rest_mb")]
        yield row(str(number), *values, late, f"{each['operator_cpu_s']:.1f}", *memory, f"{each['load']:.1f}")
    yield ""


def _late(run: dict[str, Any]) -> Iterator[str]:
    yield "In the first round, while all jobs train, pods of a third of them are failed, ten a second:"
    yield ""
    yield from table("from ... to ...", "median, s", "p99, s", "largest, s", "number")
    for part, text in HEALERS.items():
        yield _spread_row(text, run["replaced_s"][part])
    yield _spread_row("a pod changed: the job's status shows it", run["status_lag_s"])
    yield _spread_row("an iteration ended: the job's status shows it", run["steady"]["progress_lag_s"])
    for many, found in run.get("reactions", {}).items():
        for what, late in found.items():
            yield _spread_row(f"{many} jobs train, {what}: the operator's first action for it", late)
    yield ""
    steady = run["steady"]
    writes, share = steady["requests_per_s"].get("patch", 0.0), steady["operator_cpus"]
    yield f"While all {run['jobs']} train, with an iteration a second each, the operator takes {share:.0%} of a CPU and"
    yield f"writes {writes:.0f} statuses a second."
    yield ""


def _writes(run: dict[str, Any]) -> Iterator[str]:
    yield "Requests of the operator to the API server, per job (without watches):"
    yield ""
    yield from table("", *VERBS)
    created = {verb: median(each["requests"].get(verb, 0.0) for each in run["rounds"]) for verb in VERBS}
    for what, found in (("created to Running", created), ("its end, pools removed", run["finish"]["requests"])):
        yield row(what, *(f"{found.get(verb, 0.0):.2f}" for verb in VERBS))
    yield ""


def _spread_row(what: str, found: dict[str, float]) -> str:
    keys = ("p50", "p99", "max")
    values = [f"{found[key]:.2f}" if key in found else "-" for key in keys]
    missing = found.get("missing", 0)
    return row(what, *values, f"{found['count']:,}" + (f", {missing} never" if missing else ""))


def _p99(found: dict[str, float]) -> float:
    """The 99th percentile; without end where something never came."""
    return inf if found.get("missing") else found.get("p99", inf)


def _growth(rounds: list[dict[str, Any]]) -> float | None:
    return rounds[-1]["rest_mb"] / rounds[WARM - 1]["rest_mb"] if len(rounds) > WARM else None
