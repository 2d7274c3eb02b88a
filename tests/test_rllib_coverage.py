"""Every promise of RLlib's documentation has a row that is true: a test that exists, a decision, or what is missing."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest
from rllib_coverage import PAGE, ROOT, STATUSES, Row, page, read_table
from test_docs import anchors

from reef.algorithms.registry import ALGORITHMS, config_class
from reef.api.keys import KNOWN_SETTINGS
from reef.cli.describe import own_refusals
from reef.config.aliases import MOVED, RENAMED, WITHOUT_EFFECT
from reef.config.refusals import NOT_YET, REFUSALS

ROWS = read_table()
SETTINGS = {row.id: row for row in ROWS if row.group == "Settings"}
OWN_SETTINGS = {row.id: row for row in ROWS if row.group == "Settings of some algorithms"}
ALIASES = RENAMED | MOVED
# How many rows of a group may be missing. A number goes down when a row works, and never up.
MISSING: dict[str, int] = {}
OTHERWISE_REFUSED = {"action_mask_key", "in_evaluation"}  # declared, and refused with another value than the default
OF_SOME_ALGORITHMS = {  # refused by most, declared by those that read recorded episodes
    "input_": "works",
    "input": "works",
    "postprocess_inputs": "works",
    "actions_in_input_normalized": "works",
}


@cache
def tests_of(path: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def rows(status: str) -> list[Row]:
    return [row for row in ROWS if row.status == status]


def test_rows_are_whole_and_their_ids_unique() -> None:
    assert [row.id for row in ROWS if not all((row.group, row.id, row.promise, row.proof))] == []
    assert [row.id for row in ROWS if row.status not in STATUSES] == []
    assert [name for name, count in Counter(row.id for row in ROWS).items() if count > 1] == []
    assert [row.id for row in ROWS if row.promise[-1] != "."] == []
    groups = [row.group for row in ROWS]
    assert sum(one != other for one, other in zip(groups, groups[1:], strict=False)) == len(set(groups)) - 1


@pytest.mark.parametrize("row", rows("works"), ids=lambda row: row.id)
def test_what_works_has_a_test_that_runs(row: Row) -> None:
    path, _, name = row.proof.partition("::")
    assert path.startswith("tests/") and (ROOT / path).is_file()
    assert name in tests_of(path), f"{path} has no {name}"
    assert not any("skip" in ast.unparse(each) or "xfail" in ast.unparse(each) for each in marks(path, name))


def marks(path: str, name: str) -> list[ast.expr]:
    """The decorators of a test, and what its file has as `pytestmark`."""
    module = ast.parse(text_of(path)).body
    of_file = [node.value for node in module if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    return [*tests_of(path)[name].decorator_list, *of_file]


@pytest.mark.parametrize("row", rows("decided"), ids=lambda row: row.id)
def test_what_was_decided_is_written_down(row: Row) -> None:
    path, _, anchor = row.proof.partition("#")
    assert path.startswith("docs/") and path.endswith(".md") and path != "docs/rllib-coverage.md"
    assert anchor in anchors(ROOT / path)


def test_every_setting_has_a_row() -> None:
    assert SETTINGS.keys() >= set(KNOWN_SETTINGS["shared"])
    assert OWN_SETTINGS.keys() | SETTINGS.keys() >= {key for keys in KNOWN_SETTINGS["own"].values() for key in keys}


def test_settings_of_some_algorithms_are_as_the_code_has_them() -> None:
    for name in ALGORITHMS:
        kind = config_class(name)
        for key in kind.by_key.keys() & OWN_SETTINGS.keys():
            assert OWN_SETTINGS[key].status == "works", key
        for key, refusal in own_refusals(kind).items():
            if key in OWN_SETTINGS:
                assert OWN_SETTINGS[key].status == ("missing" if refusal.advice.startswith(NOT_YET) else "decided"), key


def test_settings_are_as_the_code_has_them() -> None:
    """What is refused as not available yet is missing, what is refused for good was decided, and all else works."""
    for name, row in SETTINGS.items():
        key = ALIASES.get(name, name)
        if key not in KNOWN_SETTINGS["shared"]:
            continue
        if name in WITHOUT_EFFECT:
            expected = "decided"
        elif key in REFUSALS:
            expected = "missing" if REFUSALS[key].advice == NOT_YET else "decided"
        else:
            expected = "works"
        assert row.status == OF_SOME_ALGORITHMS.get(name, expected), name


def test_the_proof_of_a_setting_speaks_of_it() -> None:
    for name, row in SETTINGS.items():
        if row.status == "works" and name in KNOWN_SETTINGS["shared"] and name not in ALIASES:
            path = row.proof.partition("::")[0]
            assert name.rpartition(".")[2] in text_of(path), f"{path} says nothing of {name}"


def test_no_more_is_missing_than_was() -> None:
    found = Counter(row.group for row in rows("missing"))
    assert dict(found) == MISSING, "a number may only go down: what works has another status"


def test_the_page_is_what_make_docs_generates() -> None:
    assert PAGE.read_text() == page(ROWS), "run `make docs`"
