"""The measurement of the servers of policies, in short."""

from __future__ import annotations

import pytest
from benchmarks.serving import main
from finished import checkpoint_of, ppo


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint_of(ppo(), tmp_path_factory.mktemp("benchmark") / "c")


def test_all_servers_are_measured(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([checkpoint, "--clients", "2", "--seconds", "0.1"])
    lines = capsys.readouterr().out.splitlines()
    names = ("reef serve", "WebSocket", "policy server", "aiohttp echo", "reef serve", "WebSocket", "policy server")
    assert len(lines) == len(names)
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(f"{name} ")
    assert all(" per second, median " in line for line in lines[:4])
    assert all(line.endswith(" of the echo") for line in lines[4:])


def test_a_server_that_is_not_known_is_refused(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([checkpoint, "--only", "other"])
    known = "'reef serve', 'WebSocket', 'policy server', 'aiohttp echo'"
    assert f"--only other: expected some of {known}" in capsys.readouterr().err
