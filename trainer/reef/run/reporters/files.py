"""params.json, result.json (one JSON object per line and iteration) and progress.csv."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from reef.errors import WriteError
from reef.run.metrics import Result, json_safe
from reef.run.reporters.reporter import Run, Summary, flatten

PARAMS, RESULTS, PROGRESS = "params.json", "result.json", "progress.csv"


class ResultFiles:
    """Writes the folder of a run. A resumed run goes on after its restored iteration; later lines are dropped."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._columns: list[str] = []
        self._begun = False

    def start(self, run: Run) -> None:
        """Remember the run; its folder is made by the first report."""
        self._run = run

    def report(self, result: Result) -> None:
        """Append a line to both files; raises `WriteError` when the disk refuses."""
        assert self._run is not None, "start() comes first"
        with storage_errors(self._run.folder):
            if not self._begun:
                self._begin(self._run)
            with (self._run.folder / RESULTS).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(result) + "\n")
            self._append_row(self._run.folder / PROGRESS, dict(flatten(result)))

    def finish(self, summary: Summary | None) -> None:
        """Every line is on disk already."""

    def _begin(self, run: Run) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        replace_text(run.folder / PARAMS, [json.dumps(json_safe(run.config), indent=2) + "\n"])
        kept = [json.dumps(result) + "\n" for result in read_results(run.folder, until=run.restored_iteration)]
        replace_text(run.folder / RESULTS, kept)
        self._rewrite_rows(run.folder / PROGRESS, until=run.restored_iteration)
        self._begun = True

    def _append_row(self, file: Path, row: dict[str, Any]) -> None:
        if new := [column for column in row if column not in self._columns]:
            self._columns += new
            self._rewrite_rows(file)  # for example when the first evaluation brings its columns
        with file.open("a", encoding="utf-8", newline="") as stream:
            csv.DictWriter(stream, self._columns).writerow(row)

    def _rewrite_rows(self, file: Path, until: int | None = None) -> None:
        rows: list[dict[str, Any]] = []
        if file.exists():
            with file.open(encoding="utf-8", newline="") as stream:
                rows = [row for row in csv.DictReader(stream) if until is None or _iteration(row) <= until]
        self._columns = list(dict.fromkeys([*(key for row in rows for key in row), *self._columns]))
        temporary = file.with_name(f".{file.name}.tmp")
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            _write_table(stream, self._columns, rows)
        temporary.replace(file)


def read_results(folder: Path, until: int | None = None) -> Iterator[Result]:
    """The results in a run's folder up to iteration `until`; a line that a kill cut off ends them."""
    file = folder / RESULTS
    if not file.exists():
        return
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            try:
                result: Result = json.loads(line)
            except ValueError:
                return
            if until is None or result["training_iteration"] <= until:
                yield result


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Say which folder it is when the disk refuses."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"cannot write results to {folder}: {error}. Free space there or choose another folder (--storage-path)."
        ) from error


def replace_text(file: Path, lines: Iterable[str]) -> None:
    """Write a text file so that a kill leaves the old one or the new one."""
    temporary = file.with_name(f".{file.name}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.writelines(lines)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)


def _write_table(stream: TextIO, columns: list[str], rows: list[dict[str, Any]]) -> None:
    if columns:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)


def _iteration(row: dict[str, Any]) -> float:
    """The row's iteration; infinity for a row that a kill cut off, so that it is dropped."""
    text = row.get("training_iteration") or ""
    return int(text) if text.isdigit() else float("inf")
