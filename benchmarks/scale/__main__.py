"""Measure the operator with hundreds of jobs on the test cluster, and write benchmarks/RESULTS.md anew."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "cluster"))  # the test cluster

from kube.__main__ import name_of_cluster
from kube.cluster import used_cluster
from kube.progress import ClusterError

from benchmarks.scale.load import Load, measure, reactions
from benchmarks.scale.operator_process import answering_heads, operator
from benchmarks.scale.watcher import Watcher
from benchmarks.speed import machine
from benchmarks.speed.processes import ROOT
from benchmarks.speed.report import report

NODES = 2
STEADY_S = 45.0


def main() -> int:
    """Measure, and keep the numbers beside those of `make bench`."""
    args = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    raw = args.out / "results.json"
    results = json.loads(raw.read_text()) if raw.exists() else {"parts": {}}
    begin, begun = machine.moment(), time.monotonic()
    arguments = {"jobs": args.jobs, "workers": args.workers, "rounds": args.rounds}
    try:
        for run in measured(args.jobs, args.workers, args.rounds, args.steady, args.many):
            case = {"peer": "reef", "args": arguments, "runs": [run | {"wall_s": time.monotonic() - begun}]}
            quick = args.jobs < 300 or len(run["rounds"]) < 10
            results["parts"]["scale"] = {**begin, "quick": quick, "cases": {"reef": case}}
            raw.write_text(json.dumps(results, indent=1) + "\n")
            (args.out / "RESULTS.md").write_text(report(results))
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"==> {args.out / 'RESULTS.md'}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=300, help="created at once (300)")
    parser.add_argument("--workers", type=int, default=1, help="worker pods of each (1)")
    parser.add_argument("--rounds", type=int, default=10, help="all jobs are created and deleted so often (10)")
    parser.add_argument("--steady", type=float, default=STEADY_S, help="seconds for which all train (45)")
    parser.add_argument("--many", type=int, default=1000, help="that train when edits are timed once more (1000)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks", help="folder of results.json and RESULTS.md")
    return parser


def measured(jobs: int, workers: int, rounds: int, steady_s: float, many: int) -> Iterator[dict[str, Any]]:
    """Run everything on the test cluster; yield the results after every round."""
    with (
        used_cluster(name_of_cluster()) as cluster,
        operator(cluster) as process,
        answering_heads(cluster),
        cluster.namespace("scale") as namespace,
        cluster.hollow_nodes(NODES) as nodes,
        Watcher(cluster.api, namespace) as watcher,
    ):
        load = partial(Load, cluster, namespace, nodes, watcher, process, workers=workers)
        result: dict[str, Any] = {}
        for result in measure(load(jobs=jobs), rounds, steady_s):
            yield result
        if many:
            result["reactions"] |= reactions(load(jobs=many))
            yield result


if __name__ == "__main__":
    sys.exit(main())
