"""What the files of a checkpoint must hold, where their bytes are those that were written: types and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reef.errors import CheckpointError, DamagedCheckpointError, ReefError
from reef.run.checkpoint.models import MODEL_FILE
from reef.trees import USE_ANOTHER

Count = Annotated[int, Field(ge=0, lt=2**63)]
STRICT = ConfigDict(strict=True, extra="ignore")


class Fingerprint(BaseModel):
    """What a manifest says of a file."""

    model_config = STRICT

    bytes: Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Metadata(BaseModel):
    """What is read of a checkpoint's metadata; other fields may be in it."""

    model_config = STRICT

    reef_version: str
    time: str
    iteration: Count | None = None
    algorithm: str | None = None
    algorithm_class: str | None = None
    config: dict[str, Any] | None = None
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None


FILES = TypeAdapter(dict[str, Fingerprint])


def check_metadata(metadata: Any, file: Path) -> dict[str, Any]:
    """Return `metadata`; raises `CheckpointError` where a field is of another type."""
    with described(file):
        Metadata.model_validate(metadata)
    assert isinstance(metadata, dict), "validated"
    return metadata


def check_files(files: Any, names: frozenset[str], file: Path) -> dict[str, Fingerprint]:
    """What a manifest says of the files of a checkpoint: of all `names`, of models, and of no others."""
    with described(file):
        found = FILES.validate_python(files)
    if {name for name in found if not re.fullmatch(MODEL_FILE, name)} != names:
        raise DamagedCheckpointError(
            f"{file} is damaged: it lists {', '.join(sorted(map(repr, found))) or 'no file'}, expected "
            f"{', '.join(sorted(names))}. {USE_ANOTHER}"
        )
    return found


@contextmanager
def described(file: Path) -> Iterator[None]:
    """Say what pydantic found in a file, without its frame around it."""
    try:
        yield
    except ValidationError as error:
        raise DamagedCheckpointError(f"{file} is damaged: {first_problem(error, 'it')}. {USE_ANOTHER}") from error


def first_problem(error: ValidationError, whole: str) -> str:
    """The first thing that pydantic found, by its key, which is `whole` where the value itself is wrong."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


@contextmanager
def restoring(what: str | Path) -> Iterator[None]:
    """Turn whatever is wrong with the content of `what` into a `CheckpointError` that names it.

    Nested: the outermost names the checkpoint, those within the part of the state. The cause stays chained, as it may
    be a fault of Reef or of a class of the user's own.
    """
    try:
        yield
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(f"{what}: {error}") from error.__cause__
    except CheckpointError as error:
        raise CheckpointError(f"{what}: {error}") from error.__cause__
    except ReefError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise DamagedCheckpointError(f"{what} cannot be restored ({text}). {USE_ANOTHER}") from error
