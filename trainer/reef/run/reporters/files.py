"""params.json, result.json (one JSON object per line and iteration) and progress.csv."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reef.api.keys import STOP_FIELDS
from reef.errors import WriteError
from reef.run.metrics import Result
from reef.run.reporters.reporter import Reporter, Run, flatten
from reef.trees import json_safe

log = logging.getLogger(__name__)
PARAMS, RESULTS, PROGRESS = "params.json", "result.json", "progress.csv"
ITERATION = "training_iteration"


class ResultFiles(Reporter):
    """Writes the folder of a run. A resumed run goes on after its restored iteration; later lines are dropped."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._begun = False

    def report(self, result: Result) -> None:
        """Append a line to both files; raises `WriteError` when the disk refuses."""
        with storage_errors(self.run.folder):
            if not self._begun:
                self._begin(self.run)
            with (self.run.folder / RESULTS).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(result) + "\n")
            self._append_row(self.run.folder / PROGRESS, dict(flatten(result)))

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
        rows = [row for row in read_rows(file) if until is None or int(row[ITERATION]) <= until]
        self._columns = list(dict.fromkeys([*(key for row in rows for key in row), *self._columns]))
        table = io.StringIO(newline="")
        if self._columns:
            writer = csv.DictWriter(table, self._columns)
            writer.writeheader()
            writer.writerows(rows)
        replace_text(file, [table.getvalue()])


def read_results(folder: Path, until: int | None = None) -> Iterator[Result]:
    """The results in a run's folder up to iteration `until`.

    A line that a kill cut off ends them; so does a damaged one, with a warning. Raises `WriteError` when the disk
    refuses.
    """
    file = folder / RESULTS
    for number, line in _lines(file):
        try:
            result: Result = json.loads(line)
        except (ValueError, RecursionError):
            problem: str | None = "is no JSON"
        else:
            problem = _result_problem(result)
        if problem:
            _warn_of_damage(file, number, problem, cut_off=not line.endswith("\n"))
            return
        if until is None or result[ITERATION] <= until:
            yield result


def read_rows(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a progress.csv; they end before one that is cut off or damaged, as in `read_results`."""
    last = ""

    def lines() -> Iterator[str]:
        nonlocal last
        for _, last in _lines(file):
            yield last

    reader = csv.reader(lines())
    try:
        columns = next(reader, [])
        for fields in reader:
            row = dict(zip(columns, fields, strict=False))
            if not len(columns) == len(fields) == len(row):
                problem = f"has {len(fields)} fields, expected {len(columns)} under different names"
                break
            if not re.fullmatch("[0-9]{1,18}", row.get(ITERATION, "")):
                problem = f"has the {ITERATION} {row.get(ITERATION)}"
                break
            yield row
        else:
            return
    except csv.Error as error:
        problem = f"is no row of a table: {error}"
    _warn_of_damage(file, reader.line_num, problem, cut_off=not last.endswith("\n"))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, up to one that is no UTF-8 text; none where there is no file."""
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError:
                    _warn_of_damage(file, number, "is no UTF-8 text", cut_off=not line.endswith(b"\n"))
                    return
                yield number, text
    except FileNotFoundError:
        return
    except OSError as error:
        raise WriteError(f"cannot read {file}: {error}. Make it readable, or move its folder away.") from error


def _result_problem(result: Any) -> str | None:
    """What is wrong with a line of result.json; None where the fields that are read again are numbers or null."""
    if not isinstance(result, dict):
        return "is no JSON object"
    if (iteration := result.get(ITERATION)) is None or isinstance(iteration, float):
        return f"has the {ITERATION} {iteration}"
    for key in STOP_FIELDS & result.keys():
        value = result[key]
        number = isinstance(value, int | float) and not isinstance(value, bool) and -(2.0**63) < value < 2.0**63
        if value is not None and not number:
            return f"has no number as {key}"
    return None


def _warn_of_damage(file: Path, number: int, problem: str, *, cut_off: bool) -> None:
    """A last line without an end needs no warning: the process that wrote it was killed."""
    if not cut_off:
        log.warning("%s: line %d %s: the file counts as cut off before it", file, number, problem)


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
    replace_bytes(file, "".join(lines).encode())


def replace_bytes(file: Path, content: bytes) -> None:
    """As `replace_text`, for a file of any kind; nothing is left of one that the disk refuses."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
