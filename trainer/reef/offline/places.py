"""The files of recorded episodes that are meant by files, folders and patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from reef.errors import ConfigError
from reef.offline.episode_files import ENDINGS
from reef.offline.minari.data_set import SCHEME, data_folder, folder_of


def files_of(places: str | Sequence[str]) -> list[Path]:
    """The files that are meant by files, folders (their files with one of `ENDINGS`) and patterns, in order, each once.

    A data set of Minari, by its name or its folder, is the folder with its data.

    Raises:
        ConfigError: one of them leads to no file, or cannot be read.
    """
    found: dict[Path, None] = {}
    for place in [places] if isinstance(places, str) else places:
        try:
            found.update(dict.fromkeys(_files_at(place)))
        except OSError as error:
            raise ConfigError(f"input_={place!r}: it cannot be read: {error.strerror}.") from error
    return list(found)


def _files_at(place: str) -> list[Path]:
    if place.startswith(SCHEME):
        return [folder_of(place)]
    path, problem = Path(place).expanduser(), "there is no such file"
    if path.is_dir() and (data := data_folder(path)) is not None:
        return [data]
    if path.is_dir():
        files = [file for file in path.iterdir() if file.suffix in ENDINGS]
        problem = f"the folder has no {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file"
    elif path.is_file():
        # its name may look like a pattern
        files = [path]
    else:
        files = [Path(file) for file in _matching(str(path))]
        problem = "it is no file, but a pipe or the like" if files else problem
    # A pipe is no file: to read one would wait for whoever writes to it.
    if not (found := sorted({file for file in files if file.is_file()})):
        raise ConfigError(f"input_={place!r}: {problem}. Write episodes with `reef evaluate CHECKPOINT --out FILE`.")
    return found


def _matching(pattern: str) -> Iterator[str]:
    """As `glob.glob`, in which a link to a folder above makes no end of folders."""
    above, deep, after = f"/{pattern}/*".partition("/**/")
    if not deep:
        yield from glob.glob(pattern)
        return
    before, after = f"{above}/"[1:], after.removesuffix("/*") or "*"
    for top in glob.glob(before or "./"):
        for folder in _folders_below(top):
            yield from _matching(f"{glob.escape(folder)}/{after}")


def _folders_below(top: str) -> Iterator[str]:
    """The folder and all that are in it, hidden ones left out, and each once, whatever links lead to it."""
    seen: set[tuple[int, int]] = set()
    for folder, inner, _ in os.walk(top, followlinks=True):
        status = os.stat(folder)
        place = (status.st_dev, status.st_ino)
        if place in seen:
            inner.clear()
            continue
        seen.add(place)
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield folder.rstrip("/") or "/"
