"""The setting `input_config.columns`: how the columns of Parquet that others wrote are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from reef.errors import nearest

# By the name in the setting, which is RLlib's: the key of a step in Reef's own files.
KEYS = MappingProxyType(
    {
        "obs": "obs",
        "actions": "action",
        "rewards": "reward",
        "terminateds": "terminated",
        "episode_id": "episode",
        "truncateds": "truncated",
        "new_obs": "next_obs",
        "action_logp": "action_logp",
        "action_prob": "action_prob",
        "t": "t",
    }
)
NEEDED = ("obs", "actions", "rewards", "terminateds", "episode_id")
MAY_BE_SEVERAL = ("obs", "new_obs", "actions")
EXAMPLE = "{'columns': {'obs': 'state', 'actions': 'a', 'rewards': 'r', 'terminateds': 'done', 'episode_id': 'id'}}"


def named_columns(input_config: Mapping[str, Any]) -> dict[str, str | list[str]] | None:
    """By the key of a step its column, or the list of columns with a number each; None where the setting names none."""
    if "columns" not in input_config:
        return None
    given = input_config["columns"].items()
    return {KEYS[name]: columns if isinstance(columns, str) else list(columns) for name, columns in given}


def column_problems(input_config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with `input_config` of files."""
    if others := sorted(map(str, input_config.keys() - {"columns"})):
        yield (
            f"input_config={dict(input_config)!r}: {others[0]!r} is for a reader of your own, or a policy server. Of "
            "files there is 'columns' alone, which names the columns of Parquet. Leave it out."
        )
    if "columns" not in input_config:
        return
    columns = input_config["columns"]
    if not isinstance(columns, Mapping):
        yield f"input_config.columns={columns!r}: expected names of columns, such as {EXAMPLE}."
        return
    for name in NEEDED:
        if name not in columns:
            yield f"input_config.columns: {name!r} is missing. Say which column has it, as in {EXAMPLE}."
    for name, column in columns.items():
        yield from _problems_of(name, column)


def _problems_of(name: Any, column: Any) -> Iterator[str]:
    if name not in KEYS:
        yield f"input_config.columns.{name}: there is no such name.{nearest(name, KEYS)} There are {', '.join(KEYS)}."
        return
    is_list = isinstance(column, list | tuple) and bool(column) and all(isinstance(part, str) for part in column)
    if isinstance(column, str) or (is_list and name in MAY_BE_SEVERAL):
        return
    expected = "a column, or a list of columns with a number each" if name in MAY_BE_SEVERAL else "the name of a column"
    yield f"input_config.columns.{name}={column!r}: expected {expected}."
