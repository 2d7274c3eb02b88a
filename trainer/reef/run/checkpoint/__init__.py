"""Checkpoints: their files (`files`, `content`), what fits an algorithm (`fit`), and those of one run (`store`)."""

from reef.run.checkpoint.content import restoring
from reef.run.checkpoint.files import (
    MANIFEST,
    METADATA,
    NAMES,
    is_readable,
    read_algorithm,
    read_checkpoint,
    read_metadata,
    read_state,
    remove_checkpoint,
    verify_checkpoint,
    write_checkpoint,
)
from reef.run.checkpoint.store import CheckpointStore, find_checkpoint, is_checkpoint_name, iteration_of

__all__ = [
    "MANIFEST",
    "METADATA",
    "NAMES",
    "CheckpointStore",
    "find_checkpoint",
    "is_checkpoint_name",
    "is_readable",
    "iteration_of",
    "read_algorithm",
    "read_checkpoint",
    "read_metadata",
    "read_state",
    "remove_checkpoint",
    "restoring",
    "verify_checkpoint",
    "write_checkpoint",
]
