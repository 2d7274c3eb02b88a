"""Every promise of RLlib's documentation has a row that is true: a test that exists, a decision, or what is missing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from itertools import groupby

from rllib_coverage import PAGE, ROOT, STATUSES, Row, page, read_table
from test_docs import anchors

from reef.algorithms.registry import ALGORITHMS, config_class
from reef.api.keys import KNOWN_SETTINGS
from reef.cli.describe import own_refusals
from reef.config.aliases import MOVED, RENAMED, WITHOUT_EFFECT
from reef.config.refusals import NOT_YET, REFUSALS

ROWS = read_table()
MAY_SKIP = re.compile(r"mark\.(skip|xfail)|pytest\.(skip|xfail|importorskip)")
SETTINGS = {row.id: row for row in ROWS if row.group == "Settings"}
OWN_SETTINGS = {row.id: row for row in ROWS if row.group == "Settings of some algorithms"}
ALIASES = RENAMED | MOVED
# They work in algorithms that read recorded episodes; the others refuse them.
OFFLINE = {"postprocess_inputs"}


@cache
def functions_of(path: str) -> dict[str, ast.FunctionDef]:
    """The functions of a test file by name."""
    return {node.name: node for node in ast.parse(text_of(path)).body if isinstance(node, ast.FunctionDef)}


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def rows(status: str) -> list[Row]:
    return [row for row in ROWS if row.status == status]


def test_rows_are_whole_and_their_ids_unique() -> None:
    assert [row.id for row in ROWS if not all((row.group, row.id, row.promise, row.proof))] == []
    assert [row.id for row in ROWS if row.status not in STATUSES or row.promise[-1] != "."] == []
    assert [name for name, count in Counter(row.id for row in ROWS).items() if count > 1] == []
    groups = [row.group for row in ROWS]
    assert [len(list(each)) for _, each in groupby(groups)] == list(Counter(groups).values()), "each in one piece"


def test_what_works_has_a_test_that_runs() -> None:
    assert [(row.id, fault) for row in rows("works") for fault in faults_of(row.proof)] == []


def faults_of(proof: str) -> list[str]:
    """What is wrong with a test as a proof."""
    path, _, name = proof.partition("::")
    if not (path.startswith("tests/") and (ROOT / path).is_file()):
        return [f"{path} is no test file"]
    if not (name.startswith("test_") and name in functions_of(path)):
        return [f"{path} has no {name}"]
    of_file = [node for node in ast.parse(text_of(path)).body if "pytestmark" in ast.unparse(node)]
    text = "\n".join(map(ast.unparse, [*of_file, functions_of(path)[name]]))
    return [f"{proof} may be skipped"] if MAY_SKIP.search(text) else []


def test_faults_of_proofs_are_found() -> None:
    assert faults_of("tests/test_nowhere.py::test_it") == ["tests/test_nowhere.py is no test file"]
    assert faults_of("tests/test_rllib_coverage.py::test_gone") == ["tests/test_rllib_coverage.py has no test_gone"]
    assert faults_of("tests/test_rllib_coverage.py::rows") == ["tests/test_rllib_coverage.py has no rows"]
    assert len(faults_of("tests/trainer/learn/test_learner.py::test_a_missing_gpu_is_named")) == 1
    assert len(faults_of("tests/trainer/learn/test_compiled.py::test_inductor_learns_the_same")) == 1
    assert faults_of("tests/test_rllib_coverage.py::test_every_setting_has_a_row") == []


def test_what_was_decided_is_written_down() -> None:
    assert [row.id for row in rows("decided") if not is_a_place(row.proof)] == []


def is_a_place(link: str) -> bool:
    """Whether it leads to a heading of a document, not of the page itself."""
    path, _, anchor = link.partition("#")
    document = ROOT / path
    return path.startswith("docs/") and document != PAGE and document.is_file() and anchor in anchors(document)


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
        elif key in REFUSALS and name not in OFFLINE:
            expected = "missing" if REFUSALS[key].advice == NOT_YET else "decided"
        else:
            expected = "works"
        assert row.status == expected, name


def test_older_spellings_mean_what_their_rows_say() -> None:
    found = SETTINGS | OWN_SETTINGS
    assert [older for older, name in ALIASES.items() if f"`{name}`" not in found[older].promise] == []


def test_the_proof_of_a_setting_speaks_of_it() -> None:
    proofs = {name: row.proof.partition("::")[0] for name, row in SETTINGS.items() if row.status == "works"}
    own = {name: path for name, path in proofs.items() if name in KNOWN_SETTINGS["shared"] and name not in ALIASES}
    assert [(name, path) for name, path in own.items() if name.rpartition(".")[2] not in text_of(path)] == []


def test_nothing_is_missing() -> None:
    assert rows("missing") == []


def test_the_page_is_what_make_docs_generates() -> None:
    assert PAGE.read_text() == page(ROWS), "run `make docs`"
