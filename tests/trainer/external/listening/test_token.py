"""The token of a server, from where a person puts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reef.errors import ConfigError
from reef.external.listening.token import read_token


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no token"),
        (b" \n", "holds no token"),
        ("schlüssel".encode(), "holds no token: put a long random text of ASCII characters there"),
        (b"two\nlines", "holds no token"),
        (b"\xff", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"(?s)token_file='{file}': the file.*{problem}"):
        read_token(None, str(file))


def test_a_token_is_read_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("TOKEN", "other")
    assert read_token(None, str(tmp_path / "token")) == "secret"
    assert read_token("TOKEN", None) == "other"
    assert read_token(None, None) is None
