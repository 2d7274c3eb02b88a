"""Checkpoints: their files (`files`, `content`), what fits an algorithm (`fit`), and those of one run (`store`)."""

from reef.run.checkpoint.content import restoring
from reef.run.checkpoint.files import read_algorithm, read_checkpoint, read_metadata, read_state, write_checkpoint
from reef.run.checkpoint.store import CheckpointStore, find_checkpoint, iteration_of

__all__ = [
    "CheckpointStore",
    "find_checkpoint",
    "iteration_of",
    "read_algorithm",
    "read_checkpoint",
    "read_metadata",
    "read_state",
    "restoring",
    "write_checkpoint",
]
