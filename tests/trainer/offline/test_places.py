"""Files, folders and patterns that `input_` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reef.errors import ConfigError
from reef.offline.places import files_of


def test_files_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("a.json", "b.jsonl", "notes.txt", "deep/c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [path.name for path in files_of(str(tmp_path))]
    assert names == ["a.json", "b.jsonl"]
    assert [path.name for path in files_of([f"{tmp_path}/**/*.json", f"{tmp_path}/notes.txt"])] == [
        "a.json",
        "c.json",
        "notes.txt",
    ]
    (tmp_path / "empty").mkdir()
    for place, reason in (
        ("missing.json", "there is no such file"),
        ("empty", "the folder has no .json, .jsonl or .parquet file"),
    ):
        with pytest.raises(ConfigError, match=f"{place}': {reason}"):
            files_of(str(tmp_path / place))


@pytest.mark.parametrize("name", ["lr=[0.1]/e.json", "[0.1].json"])
def test_an_existing_file_is_no_pattern(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert files_of(str(path)) == [path]


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ConfigError, match=f"input_='{tmp_path}': it cannot be read: Permission denied"):
        files_of(str(tmp_path))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/*.json", ["a.json", "b.json", "c.json"]),
        ("**", ["a.json", "b.json", "c.json", "d.txt"]),
        ("one/**/*.json", ["b.json", "c.json"]),
        ("*/**/c.json", ["c.json"]),
        ("**/two/**/*", ["c.json"]),
        ("*/*.json", ["b.json"]),
    ],
)
def test_two_stars_are_any_folders(pattern: str, names: list[str], tmp_path: Path) -> None:
    for name in ("a.json", "one/b.json", "one/two/c.json", "one/d.txt", ".hidden/e.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(path.name for path in files_of(str(tmp_path / pattern))) == names


def test_a_link_to_a_folder_elsewhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").touch()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    assert [path.name for path in files_of(f"{tmp_path}/here/**/*.json")] == ["a.json"]
