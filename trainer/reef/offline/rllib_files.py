"""Batches of steps that RLlib wrote as lines of JSON, read as episodes.

A line is one batch: columns by name, whose rows of one `eps_id` that follow each other are steps of one episode.
Columns that RLlib packed are compressed pickles, which can run code when they are read: they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from reef.errors import nearest
from reef.offline.steps import ACTION_LOGP, ACTION_PROB, TIME, Steps

KINDS = ("SampleBatch", "MultiAgentBatch")
NAMES = {"obs": "obs", "action": "actions", "next_obs": "new_obs", "reward": "rewards"}  # of a step: its column
NAMES |= {name: name for name in (ACTION_LOGP, ACTION_PROB, TIME)}
OPTIONAL = ("new_obs", ACTION_LOGP, ACTION_PROB, TIME)
END, STOP = ("terminateds", "dones"), "truncateds"  # older batches have `dones` for both


def is_batch(line: Any) -> bool:
    """Whether a line of JSON is a batch of RLlib's."""
    return isinstance(line, Mapping) and line.get("type") in KINDS


def episodes_of(batch: Mapping[str, Any]) -> Iterator[Steps]:
    """The steps of each episode in a batch, with the keys of Reef's own files.

    Without `new_obs` the observation of the next row is taken, and a last step that did not terminate is left out:
    an episode of such a step alone has no steps.

    Raises:
        ValueError: a column is missing, packed or of another length, or several policies acted.
    """
    if batch["type"] == "MultiAgentBatch":
        batch = _only_policy(batch)
    columns = _columns(batch)
    ids, terminated, truncated = (columns.pop(key) for key in ("eps_id", "terminated", "truncated"))
    rows = range(len(ids))
    starts = [row for row in rows if row == 0 or ids[row] != ids[row - 1] or terminated[row - 1] or truncated[row - 1]]
    for start, end in pairwise([*starts, len(ids)]):
        if "next_obs" in columns:
            after = columns["next_obs"][start:end]
        else:
            after = columns["obs"][start + 1 : end] + columns["obs"][end - 1 : end] * bool(terminated[end - 1])
        yield [
            {key: column[row] for key, column in columns.items()}
            | {"next_obs": after[row - start], "terminated": terminated[row], "truncated": truncated[row]}
            for row in range(start, start + len(after))
        ]


def _only_policy(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The batch of the one policy that acted."""
    policies = batch.get("policy_batches", {})
    if not isinstance(policies, Mapping):
        raise ValueError(f"policy_batches is {type(policies).__name__}, expected a batch by policy")
    if len(policies) != 1:
        raise ValueError(f"the policies {sorted(policies)} acted, and one can learn from it")
    ((policy_id, only),) = policies.items()
    if not isinstance(only, Mapping):
        raise ValueError(f"the batch of the policy {policy_id!r} is {type(only).__name__}, expected columns by name")
    return only


def _columns(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that are needed, each a list with an item for each row."""
    end = next((name for name in END if name in batch), END[0])
    needed = {key: name for key, name in NAMES.items() if name not in OPTIONAL or name in batch}
    columns = {key: _column(batch, name) for key, name in (needed | {"terminated": end}).items()}
    length = len(columns["reward"])
    columns["truncated"] = _column(batch, STOP) if STOP in batch else [False] * length
    columns["eps_id"] = _column(batch, "eps_id") if "eps_id" in batch else [0] * length
    for key, column in columns.items():
        if len(column) != length:
            raise ValueError(f"{NAMES.get(key, key)} has {len(column)} rows, and rewards has {length}")
    return columns


def _column(batch: Mapping[str, Any], name: str) -> list[Any]:
    if name not in batch:
        raise ValueError(f"it has no column {name!r}.{nearest(name, batch)}")
    column = batch[name]
    if isinstance(column, str):
        raise ValueError(
            f"{name} is packed as a pickle, which is not read, as it can run code. Have RLlib write it again with "
            "output_compress_columns=[]"
        )
    if not isinstance(column, list):
        raise ValueError(f"{name} is {type(column).__name__}, expected a list")
    return column
