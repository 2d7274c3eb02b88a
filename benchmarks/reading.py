"""Reads generated episodes of N GB from Parquet: rows per second and resident memory, beside pyarrow alone.

Each way to read runs in a process of its own, which prints one line of JSON. Pages of the files are in the cache of the
system, if they fit, as they have just been written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from gymnasium import spaces
from pyarrow import parquet

from benchmarks.speed.processes import ROOT, resident_mb
from reef.envs.wrappers import RewardTransform
from reef.offline.episodes import KEYS, EpisodeReader
from reef.offline.parquet_reader import ROWS
from reef.offline.places import files_of
from reef.offline.recorded import RecordedSource
from reef.offline.shuffle_window import ShuffleWindow
from reef.spaces import Layout

ACTIONS = spaces.Box(-1.0, 1.0, (6,), np.float32)
KINDS = {  # observations, and steps of an episode
    "vectors": (spaces.Box(-np.inf, np.inf, (17,), np.float32), 1000),
    "short": (spaces.Box(-np.inf, np.inf, (4,), np.float32), 100),
    "images": (spaces.Box(0, 255, (4, 84, 84), np.uint8), 250),
}
FILE_BYTES, GROUP_BYTES = 2**30, 2**26  # of values
BATCH = 2000
WINDOW_BYTES = 2**26
READINGS = 10  # of the memory, over the pass


def generate(folder: Path, kind: str, total_bytes: float) -> int:
    """Write files with at least so many bytes of values; return the rows."""
    draws, (space, length) = np.random.default_rng(0), KINDS[kind]
    row_bytes = 2 * space.dtype.itemsize * int(np.prod(space.shape)) + 32
    per_group = max(int(min(GROUP_BYTES, total_bytes)) // row_bytes // length, 1)
    groups, per_file = int(total_bytes / row_bytes / length / per_group) + 1, FILE_BYTES // GROUP_BYTES
    for first in range(0, groups, per_file):
        tables = (episodes(draws, space, length, per_group, at) for at in range(first, min(first + per_file, groups)))
        table = next(tables)
        with parquet.ParquetWriter(folder / f"{first:06}.parquet", table.schema) as writer:
            writer.write_table(table)
            for table in tables:
                writer.write_table(table)
    return groups * per_group * length


def episodes(draws: np.random.Generator, space: spaces.Box, length: int, count: int, group: int) -> pa.Table:
    """Return whole episodes, whose images are of few colours, as those of games are."""
    rows = count * length
    shape = (rows + 1, *space.shape)
    bytes_only = space.dtype == np.uint8
    values = draws.integers(0, 8, shape, np.uint8) if bytes_only else draws.standard_normal(shape, np.float32)
    ends = np.arange(rows) % length == length - 1
    return pa.table(
        {
            "episode": np.repeat(np.arange(count) + group * count, length),
            "obs": lists(values[:-1]),
            "action": lists(draws.uniform(-1, 1, (rows, 6)).astype(np.float32)),
            "next_obs": lists(values[1:]),
            "reward": draws.standard_normal(rows),
            "terminated": ends,
            "truncated": np.zeros(rows, np.bool_),
        }
    )


def lists(values: np.ndarray) -> pa.Array:
    """[N, ...] as lists of lists, as Reef and most others write them."""
    found = pa.array(values.reshape(-1))
    for axis in range(values.ndim - 1, 0, -1):
        offsets = np.arange(0, len(found) + 1, values.shape[axis], dtype=np.int32)
        found = pa.ListArray.from_arrays(offsets, found)
    return found


def by_pyarrow(folder: Path, kind: str) -> Iterator[int]:
    """Yield rows as they are read by pyarrow alone, of the same columns, at most as many at a time."""
    space, _ = KINDS[kind]
    rows = min(ROWS, 2**26 // (16 * int(np.prod(space.shape))))
    for file in sorted(folder.iterdir()):
        with parquet.ParquetFile(file) as opened:
            columns = [name for name in (*KEYS, "episode") if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(rows, columns=columns):
                yield batch.num_rows


def by_reef(folder: Path, kind: str) -> Iterator[int]:
    """Yield rows as they are read by Reef, as episodes that were checked."""
    for episode in reader(kind).read(files_of(str(folder))):
        yield len(episode.rewards)


def by_window(folder: Path, kind: str) -> Iterator[int]:
    """Yield rows as they are read where BC, MARWIL and CQL draw them with `shuffle_buffer_size`."""
    space, _ = KINDS[kind]
    size = max(WINDOW_BYTES // (2 * space.dtype.itemsize * int(np.prod(space.shape))), BATCH)
    source = RecordedSource(lambda: reader(kind).read(files_of(str(folder))))
    window = ShuffleWindow([source], size=size, gamma=0.99, n_step=1, seed=0)
    (held,), before = window.windows, 0
    while True:
        window.sample(BATCH)
        yield held.buffer.added - before
        before = held.buffer.added


PASSES = {"pyarrow alone": by_pyarrow, "Reef, episodes": by_reef, "Reef, shuffle window": by_window}


def reader(kind: str) -> EpisodeReader:
    """Return the reader of a policy for these spaces."""
    return EpisodeReader(Layout.of(KINDS[kind][0]), Layout.of(ACTIONS), None, RewardTransform(None, atari=False))


def timed(name: str, folder: Path, kind: str, total: int) -> dict[str, Any]:
    """Read once; return seconds, rows and the resident memory, MB, before and at each tenth."""
    memory, rows, begun = [resident_mb(os.getpid())], 0, time.perf_counter()
    for count in PASSES[name](folder, kind):
        rows += count
        if rows >= total * len(memory) / READINGS:
            memory.append(resident_mb(os.getpid()))
        if rows >= total:
            break
    return {"seconds": time.perf_counter() - begun, "rows": rows, "memory_mb": memory}


def main() -> int:
    """Generate, read in each way in turns, and print the fastest turn of each."""
    args = parser().parse_args()
    if args.only:
        print(json.dumps(timed(args.only, args.folder, args.kind, args.rows)))
        return 0
    with tempfile.TemporaryDirectory(prefix="reading-", dir=args.folder) as name:
        folder = Path(name)
        rows = generate(folder, args.kind, args.gb * 1e9)
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{args.kind}: {rows:,} rows, {args.gb:g} GB of values, {size / 1e9:.2f} GB of files")
        runs = [(each, in_process(each, folder, args.kind, rows)) for _ in range(args.turns) for each in PASSES]
    best = {name: min((run for each, run in runs if each == name), key=lambda run: run["seconds"]) for name in PASSES}
    alone = rows / best["pyarrow alone"]["seconds"]
    for name, run in best.items():
        speed = run["rows"] / run["seconds"]
        memory = " ".join(f"{value:.0f}" for value in run["memory_mb"])
        print(f"{name:<21} {speed:>12,.0f} rows/s, {speed / alone:.2f} of pyarrow alone; MB: {memory}")
    return 0


def in_process(name: str, folder: Path, kind: str, rows: int) -> dict[str, Any]:
    """Read in a process of its own."""
    options = {"--only": name, "--folder": folder, "--kind": kind, "--rows": rows}
    command = [sys.executable, "-m", "benchmarks.reading", *(str(part) for pair in options.items() for part in pair)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0, help="GB of values to generate (2)")
    parser.add_argument("--kind", choices=KINDS, default="vectors", help="what is observed (vectors)")
    parser.add_argument("--turns", type=int, default=3, help="how often each way is measured (3)")
    parser.add_argument("--folder", type=existing, help="where files are generated, and removed (the temporary folder)")
    parser.add_argument("--only", choices=PASSES, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    return parser


def existing(name: str) -> Path:
    """The folder of this name; argparse.ArgumentTypeError, which ends the command with 2, if there is none."""
    folder = Path(name)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"{name!r} is not an existing folder. Create it, or leave --folder out")
    return folder


if __name__ == "__main__":
    sys.exit(main())
