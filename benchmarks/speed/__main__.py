"""Measure, keep the raw numbers in benchmarks/results.json, and write benchmarks/RESULTS.md from them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.speed import machine
from benchmarks.speed.measurements import NEED_A_GPU, PARTS, Case
from benchmarks.speed.peer_venvs import python_of
from benchmarks.speed.processes import ROOT, ScriptError, run_script
from benchmarks.speed.report import report

QUICK_S = 0.2


def main() -> int:
    """Run the chosen parts; the others keep the numbers that they have."""
    args = parser().parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    raw = args.out / "results.json"
    results = json.loads(raw.read_text()) if raw.exists() else {"parts": {}}
    for part in [] if args.report else args.only:
        results["parts"][part] = measure(part, args.quick, args.peers)
        raw.write_text(json.dumps(results, indent=1) + "\n")
    (args.out / "RESULTS.md").write_text(report(results))
    print(f"==> {args.out / 'RESULTS.md'}")
    failures = [(part, name, text) for part in args.only for name, text in failed(results["parts"].get(part))]
    for part, name, text in failures:
        print(f"FAILED {part}, {name}: {text}", file=sys.stderr)
    return 1 if failures else 0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    possible = [part for part in PARTS if part not in NEED_A_GPU or Path("/dev/nvidia0").exists()]
    names = f"parts to measure: {','.join(PARTS)} ({', '.join(NEED_A_GPU)} needs a GPU; default: all that can be)"
    parser.add_argument("--only", type=chosen(list(PARTS)), default=possible, help=names)
    parser.add_argument("--peers", type=lambda text: text.split(","), help="measure only these: reef,bare loop,sb3,...")
    parser.add_argument("--quick", action="store_true", help="one short run of each case: does it work, not how fast")
    parser.add_argument("--report", action="store_true", help="measure nothing, write RESULTS.md from results.json")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks", help="folder of results.json and RESULTS.md")
    return parser


def chosen(names: list[str]) -> Any:
    """Return a converter of a comma-separated text to some of `names`."""

    def parts(text: str) -> list[str]:
        wrong = [part for part in text.split(",") if part not in names]
        if wrong:
            raise argparse.ArgumentTypeError(f"unknown part {', '.join(wrong)}; known: {', '.join(names)}")
        return text.split(",")

    return parts


def measure(part: str, quick: bool, peers: list[str] | None) -> dict[str, Any]:
    """Run every case of a part in turns, round after round, and return their raw numbers."""
    cases = [case for case in PARTS[part]() if peers is None or case.peer in peers]
    if quick:
        cases = [replace(case, runs=1, args={**case.args, "measure_s": QUICK_S}) for case in cases]
    found: dict[str, Any] = {case.name: {"peer": case.peer, "args": case.args, "runs": []} for case in cases}
    begin = machine.moment()
    for round_index, case in turns(cases):
        entry = found[case.name]
        if "error" in entry:
            continue
        try:
            run = run_script(python_of(case.peer), case.module, {**case.args, "seed": round_index + 1}, case.limit_s)
        except ScriptError as error:
            entry["error"] = str(error)
            run = {}
        else:
            entry["runs"].append(run)
        print(f"{part}, {case.name}: {shown(run)}", flush=True)
    return {**begin, "quick": quick, "cases": found}


def turns(cases: list[Case]) -> Iterator[tuple[int, Case]]:
    """Yield (round, case) so that all cases take turns."""
    for round_index in range(max((case.runs for case in cases), default=0)):
        yield from ((round_index, case) for case in cases if round_index < case.runs)


def shown(run: dict[str, Any]) -> str:
    """Return one line about a run, for the console."""
    if "seconds" in run:
        return f"{run['steps'] / run['seconds']:,.0f} steps/s, {run['peak_mb']:,.0f} MB, {run['wall_s']:.1f} s in all"
    if "kills" in run:
        return ", ".join(f"{kill['seconds']:.1f} s" for kill in run["kills"])
    return "done" if run else "failed"


def failed(part: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield name and error of the cases that failed."""
    for name, case in (part or {"cases": {}})["cases"].items():
        if "error" in case:
            yield name, case["error"]


if __name__ == "__main__":
    sys.exit(main())
