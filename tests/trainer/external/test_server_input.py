"""`PolicyServerInput`: its arguments and its port."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from reef import PolicyServerInput
from reef.errors import ConfigError


def test_a_port_that_is_in_use_is_told_and_raised(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="Address already in use"):
            PolicyServerInput(None, "127.0.0.1", port)
    assert f"PolicyServerInput cannot listen at 127.0.0.1:{port}: " in capsys.readouterr().out


def test_it_listens_at_its_address_alone() -> None:
    server = PolicyServerInput(None, "127.0.0.2", 0)
    socket.create_connection(("127.0.0.2", server.port), timeout=5).close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
    server.stop()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"port": 70000}, "port=70000: expected a whole number from 0 to 65535"),
        ({"port": "9900"}, "port='9900': expected a whole number"),
        ({"port": True}, "port=True: expected a whole number"),
        ({"address": ""}, "address='': expected the address to listen at"),
        ({"address": None}, "address=None: expected the address"),
        ({"idle_timeout": 0}, "idle_timeout=0: expected a number above 0"),
        ({"idle_timeout": float("nan")}, "idle_timeout=nan: expected a number above 0"),
        ({"idle_timeout": None}, "idle_timeout=None: expected a number above 0"),
        ({"max_queued_steps": 0}, "max_queued_steps=0: expected a whole number above 0"),
        ({"max_episodes": 1.5}, "max_episodes=1.5: expected a whole number above 0"),
        ({"episode_timeout": "long"}, "episode_timeout='long': expected a number"),
        ({"max_request_bytes": -1}, "max_request_bytes=-1: expected a whole number above 0"),
        ({"max_connections": 0}, "max_connections=0: expected a whole number above 0"),
        ({"max_connections": 10**9}, "max_connections=1000000000: each connection is a file, and"),
        ({"token_env": "A", "token_file": "b"}, "token_env='A', token_file='b': give one of them"),
        ({"token_env": "NOT_THERE"}, "token_env='NOT_THERE': the environment variable holds no token: put a long"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        PolicyServerInput(None, **{"port": 0} | given)


def test_several_wrong_arguments_are_told_together() -> None:
    with pytest.raises(ConfigError, match="(?s)port=-1.*max_episodes=0"):
        PolicyServerInput(None, port=-1, max_episodes=0)


@pytest.mark.parametrize(
    ("address", "token", "warned"), [("0.0.0.0", None, True), ("0.0.0.0", "TOKEN", False), ("localhost", None, False)]
)
def test_an_open_address_without_a_token_is_warned_of(
    address: str, token: str | None, warned: bool, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    with caplog.at_level(logging.WARNING):
        PolicyServerInput(None, address, 0, token_env=token).stop()
    assert ("has no token, so that everybody who reaches it" in caplog.text) == warned


def test_until_it_has_a_policy_it_does_not_answer(serve: Callable[..., Any]) -> None:
    server = PolicyServerInput(None, port=0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as connection:
        connection.sendall(b"GET /v1/policy HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(100)
    server.stop()
