"""Where a data set of Minari lies, and what its metadata say."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reef.errors import ConfigError
from reef.offline.steps import refuse

SCHEME = "minari://"
METADATA, HDF5 = "metadata.json", "main_data.hdf5"
FORMATS = ("hdf5", "arrow", "parquet")


def folder_of(address: str) -> Path:
    """The folder with the data of minari://NAME; ConfigError where Minari's folder has no data set of that name."""
    root = Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()
    name = address.removeprefix(SCHEME)
    if not name or (found := data_folder(root / name)) is None:
        raise ConfigError(
            f"input_={address!r}: there is no such data set in {root}. Get it with `minari download {name}`, or set "
            "MINARI_DATASETS_PATH to the folder that has it."
        )
    return found


def data_folder(folder: Path) -> Path | None:
    """The folder itself or its folder `data`, if that is laid out as one of a data set; else None."""
    for path in (folder / "data", folder):
        metadata = path / METADATA
        if metadata.is_file() and (path / HDF5).is_file() | any(path.glob("[0-9]*/")):
            return path
    return None


@dataclass(frozen=True)
class DataSet:
    """What the metadata of a data set say about its files."""

    folder: Path
    form: str  # one of `FORMATS`
    jpeg: bool  # images may be packed as JPEG
    observations: Any  # the space, as Minari writes it to JSON
    actions: Any

    @classmethod
    def at(cls, folder: Path) -> DataSet:
        """The data set in a folder; ValueError where its metadata are none of Minari's."""
        try:
            found = json.loads((folder / METADATA).read_bytes())
            spaces = [json.loads(found[f"{name}_space"]) for name in ("observation", "action")]
            form, jpeg = found["data_format"], bool(found.get("jpeg_encoding", True))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{METADATA} is none of Minari's: {error!r}") from error
        if form not in FORMATS:
            refuse(f"{METADATA} has data_format={form!r}, expected one of {', '.join(FORMATS)}")
        return cls(folder, form, jpeg, *spaces)
