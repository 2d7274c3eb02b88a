"""The token of a server, from where a person puts it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from reef.errors import ConfigError
from reef.external.listening.token import TokenCheck, read_token


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


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({"Authorization": "Bearer a+b"}, True),
        ({"Authorization": "Bearer a"}, False),
        ({"Sec-WebSocket-Protocol": "reef, reef.token.YSti"}, True),
        ({"Sec-WebSocket-Protocol": "reef.token.YSt, reef.token."}, False),
        ({"Authorization": "Bearer wrong", "Sec-WebSocket-Protocol": "reef.token.YSti"}, True),
        ({"Authorization": "Bearer ü", "Sec-WebSocket-Protocol": "ü"}, False),
        ({}, False),
    ],
)
def test_a_token_comes_as_a_header_or_as_a_subprotocol(headers: dict[str, str], is_let_in: bool) -> None:
    refusal = TokenCheck("a+b").refusal(make_mocked_request("GET", "/", headers))
    assert (refusal is None) is is_let_in
    assert refusal is None or refusal.status == 401
    assert TokenCheck(None).refusal(make_mocked_request("GET", "/", headers)) is None


@pytest.mark.parametrize(
    ("origin", "host", "is_let_in"),
    [
        (None, "127.0.0.1:8000", True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://evil.example", "127.0.0.1:8000", False),
        ("http://localhost:9000", "localhost:8000", False),  # another program of this machine
        ("http://evil.example:8000", "evil.example:8000", False),  # a name that leads to this machine
        ("null", "127.0.0.1:8000", False),
        ("http://[", "127.0.0.1:8000", False),
    ],
)
def test_without_a_token_pages_of_other_servers_are_refused(origin: str | None, host: str, is_let_in: bool) -> None:
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    refusal = TokenCheck(None).refusal(make_mocked_request("POST", "/", headers))
    assert (refusal is None) is is_let_in
    assert refusal is None or refusal.status == 403
    sent = headers | {"Authorization": "Bearer secret"}
    assert TokenCheck("secret").refusal(make_mocked_request("POST", "/", sent)) is None


def test_a_byte_of_an_origin_that_is_no_text_is_shown() -> None:
    request: Any = SimpleNamespace(headers={"Origin": "http://\udcff"}, host="127.0.0.1:8000")
    refusal = TokenCheck(None).refusal(request)
    assert refusal is not None
    assert refusal.text == "Origin: 'http://\\udcff': the page is not this server's own under a loopback name"
