"""Train the job documents of the table with three seeds; exit code 1 when one falls short of its rewards.

They are those of this folder and of examples/tuned. A seed that was trained already, with the same document and
algorithm, is not trained again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.learn.curves import write_curves
from benchmarks.learn.lines import FOLDER, SEEDS, Line, documents
from benchmarks.learn.report import Results, is_met, report
from benchmarks.learn.training import Kept, train
from benchmarks.speed.machine import moment


def main() -> int:
    """Train, write the table, say what fell short."""
    args = parser().parse_args()
    lines = [Line.of(document) for document in documents(args.folder)]
    chosen = [line for line in lines if is_chosen(line, args)]
    raw = args.folder / "results.json"
    results: Results = json.loads(raw.read_text()) if raw.exists() and not args.quick else {}
    for line, seed, record in trained([] if args.report else due(chosen, results, args), args.jobs):
        results.setdefault(line.document.name, {})[str(seed)] = record
        print(f"{line.document.name}, seed {seed}: {shown(line, record)}", flush=True)
        if not args.quick:
            raw.write_text(as_json(results))
            if "error" not in record:
                Kept.of(line, seed).remove()
    if not args.quick:
        (args.folder / "RESULTS.md").write_text(report(results, lines))
        write_curves(args.folder / "curves", results, lines)
    missed = [line for line in chosen if not all_met(line, results)]
    for line in missed:
        print(f"NOT MET {line.document.name}: {line.promise}", file=sys.stderr)
    return 1 if missed or not chosen else 0


def all_met(line: Line, results: Results) -> bool:
    """Whether every seed that was trained met the line, and any was."""
    records = results.get(line.document.name, {}).values()
    return bool(records) and all(is_met(line, record) for record in records)


def is_chosen(line: Line, args: argparse.Namespace) -> bool:
    """Whether the command line asks for this line."""
    if args.only:
        return line.document.stem in args.only
    return line.is_quick if args.quick else line.is_long == args.long


def due(lines: list[Line], results: Results, args: argparse.Namespace) -> list[tuple[Line, int]]:
    """Return what to train: the seeds without a result of the line as it is now, or all."""
    pairs = [(line, seed) for line in lines for seed in (SEEDS[:1] if args.quick else SEEDS)]
    return [(line, seed) for line, seed in pairs if args.all or not is_known(line, seed, results)]


def is_known(line: Line, seed: int, results: Results) -> bool:
    """Whether the results have a seed of the line as it is now."""
    return results.get(line.document.name, {}).get(str(seed), {}).get("fingerprint") == line.fingerprint


def trained(pairs: list[tuple[Line, int]], jobs: int) -> Iterator[tuple[Line, int, dict[str, Any]]]:
    """Train each seed in a process of its own, `jobs` at a time, and yield the records as they come."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    try:
        running = {pool.submit(train, line.document, seed): (line, seed) for line, seed in pairs}
        for future in as_completed(running):
            (line, seed), error = running[future], future.exception()
            record = {"error": str(error)} if error else {"fingerprint": line.fingerprint, **future.result()}
            yield line, seed, moment() | record
    finally:
        pool.shutdown(cancel_futures=True)


def shown(line: Line, record: dict[str, Any]) -> str:
    """Return one line about a seed, for the console."""
    if "error" in record:
        return record["error"]
    steps, seconds, reward = record["evaluations"][-1]
    verdict = "met" if is_met(line, record) else "not met"
    return f"{verdict}, {reward:g} after {steps:,} steps and {seconds:.0f} s"


def as_json(results: Results) -> str:
    """Return the results with one line for each seed."""
    documents = []
    for name, seeds in sorted(results.items()):
        records = ",\n".join(f' "{seed}": {json.dumps(record)}' for seed, record in sorted(seeds.items()))
        documents.append(f'"{name}": {{\n{records}\n}}')
    return "{\n" + ",\n".join(documents) + "\n}\n"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn", description=__doc__)
    parser.add_argument("--only", type=lambda text: text.split(","), help="documents by name, without .yaml")
    parser.add_argument("--all", action="store_true", help="train again what has not changed, too")
    parser.add_argument("--long", action="store_true", help="the documents that take hours, and only these")
    parser.add_argument("--quick", action="store_true", help="one seed of the quick documents, no table")
    parser.add_argument("--report", action="store_true", help="train nothing, write RESULTS.md from results.json")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the table goes, with the documents there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
