"""Documents that are too large or too deep are refused, and in a time that does not depend on them."""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reef.api.limits import MAX_BYTES, MAX_DEPTH, MAX_VALUES, check_limits
from reef.api.loading import job_from_document, load_job, parse_value, parse_yaml, read_yaml
from reef.cli.document.overrides import apply_overrides
from reef.cli.main import main
from reef.cli.train import json_mapping
from reef.errors import EXIT_WRONG_USE, ConfigError

LAUGHS = "\n".join(
    ["a0: &a0 [lol, lol, lol]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
)
MERGES = "\n".join(
    ["a0: &a0 {x: 1, y: 2}"] + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
)
SEVERAL = "\n---\n".join(["\n".join(MERGES.splitlines()[:5])] * 800)  # each within the limits
WRONG = {
    "a billion laughs": (LAUGHS, "with its aliases written out"),
    "merges without an end": (MERGES, "with its aliases written out"),
    "many documents": (SEVERAL, "holds several documents"),
    "a list in itself": ("a: &a [*a]", "holds itself by an alias"),
    "a mapping in itself": ("a: &a {b: {c: *a}}", "holds itself by an alias"),
    "too deep": ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "levels deep"),
    "much too deep": ("a: " + "[" * 100_000, "levels deep"),
    "deep by aliases": ("\n".join(["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 99)]), "levels deep"),
    "too long": ("a: " + "x" * MAX_BYTES, "more than 256 KiB"),
}


def nested(levels: int, inner: Any = 1) -> Any:
    for level in range(levels):
        inner = {"a": inner} if level % 2 else [inner]
    return inner


@pytest.mark.parametrize(
    "document",
    [
        None,
        1,
        "text",
        {},
        nested(MAX_DEPTH),
        {"a": "x" * (MAX_BYTES - 100)},
        {"many": [1, 2.5, None, True, "é", {}] * 1000},
    ],
)
def test_a_document_within_the_limits_passes(document: Any) -> None:
    check_limits(document)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_one_level_too_many_is_refused(levels: int) -> None:
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} levels"):
        check_limits(nested(levels))


@pytest.mark.parametrize(
    "document",
    [
        {"a": "x" * MAX_BYTES},
        {"é" * (MAX_BYTES // 2): 1},
        [{}] * MAX_BYTES,
        [2 ** (MAX_BYTES * 4)],
    ],
)
def test_what_is_too_large_is_refused(document: Any) -> None:
    with pytest.raises(ConfigError, match="more than 256 KiB"):
        check_limits(document)


@pytest.mark.parametrize(
    "document",
    [
        [1] * MAX_VALUES,
        {f"key{number}": number for number in range(MAX_VALUES)},
        {"x": [[]] * MAX_VALUES},
        [[1.5] * 200] * (MAX_VALUES // 200),
    ],
)
def test_what_has_too_many_values_is_refused_however_few_bytes_they_are(document: Any) -> None:
    """The operator looks at a job in a time that goes by their number, and looks at others meanwhile not at all."""
    with pytest.raises(ConfigError, match="more than 10,000 numbers, texts, lists and mappings"):
        check_limits(document)


def test_a_table_of_nearly_as_many_values_as_there_may_be_passes() -> None:
    check_limits([[1.5] * 198] * 50)


def test_what_refers_to_itself_is_not_followed_for_ever() -> None:
    """As YAML's aliases make it: of ten to the power of forty values, and one without end."""
    values: Any = [1]
    for _ in range(40):
        values = [values] * 10
    with pytest.raises(ConfigError, match="with its aliases written out"):
        check_limits(values)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="64 levels"):
        check_limits(endless)


@pytest.mark.parametrize("text", ["x", "é", "\n", "😀"])
def test_the_size_is_about_that_of_the_json_text(text: str) -> None:
    item = {"name": (text + "x" * 9) * 40, "numbers": [1, 1234567, 1.5, -2.25e-7], "flags": [True, None]}
    size = len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode())
    fits, count = [item] * int(0.8 * MAX_BYTES / size), int(1.25 * MAX_BYTES / size)
    check_limits(fits)
    with pytest.raises(ConfigError):
        check_limits([item] * count)


@pytest.mark.parametrize("name", WRONG)
def test_yaml_beyond_the_limits_is_refused_at_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, problem = WRONG[name]
    began, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    file = tmp_path / "job.yaml"
    file.write_text(text)
    readers: list[Callable[[], Any]] = [
        lambda: parse_yaml(text, str(file)),
        lambda: read_yaml(file),
        lambda: load_job(file),
    ]
    for read in readers:
        with pytest.raises(ConfigError, match=problem) as raised:
            read()
        assert str(raised.value).startswith(str(file))
    for command in ("validate", "run"):
        assert main([command, str(file)]) == EXIT_WRONG_USE
        assert problem in capsys.readouterr().err
    assert main(["train", "file", str(file)]) == EXIT_WRONG_USE
    with pytest.raises(ConfigError, match=r"KiB|deep|itself|no value"):
        apply_overrides({"spec": {}}, [f"config={text}"])
    assert time.process_time() < began + 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < memory + 100_000  # KiB


def test_aliases_of_small_documents_go_on_working() -> None:
    text = "base: &base {lr: 0.1, sizes: &sizes [1, 2]}\nfirst: {<<: *base, lr: 0.2}\nsecond: [*sizes, *sizes]"
    read = parse_yaml(text, "the text")
    assert read["first"] == {"lr": 0.2, "sizes": [1, 2]}
    assert read["second"] == [[1, 2], [1, 2]]
    shared = {"x": [1] * 10}
    check_limits({"a": shared, "b": shared})
    check_limits(json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH))
    check_limits("x" * (MAX_BYTES - 100))


def test_documents_of_python_are_measured_too() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    many: Any = ["lol"]
    for _ in range(12):
        many = [many] * 9
    for document in (endless, many, {"x": "y" * MAX_BYTES}, {"a" * MAX_BYTES: 1}, ["é" * (MAX_BYTES // 2)]):
        began = time.process_time()
        with pytest.raises(ConfigError, match="the file "):
            job_from_document(document, "the file")
        assert time.process_time() < began + 2


@pytest.mark.parametrize(
    "text", ['{"a": ' + "[" * 100_000, '{"a": ' * 70 + "1" + "}" * 70, json.dumps({"a": "x" * MAX_BYTES})]
)
def test_json_of_the_command_line_has_the_same_limits(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        json_mapping(text)
    assert len(str(raised.value)) < 300


def test_a_value_has_the_same_limits() -> None:
    for text, _ in WRONG.values():
        with pytest.raises(ConfigError, match=r"more than|no value"):
            parse_value(text)


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero"):
        read_yaml("/dev/zero")
