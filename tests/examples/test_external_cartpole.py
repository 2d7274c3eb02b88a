"""The program examples/external_cartpole.py: a server, and an application in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
PLAY = "from external_cartpole import play; import sys; play(int(sys.argv[1]), sys.argv[2])"


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_what_an_application_plays_is_learned_from(example: Any, mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", PLAY, str(port), mode], cwd=FOLDER) as application:
        try:
            rewards = example("external_cartpole")["serve"](port, 2 if mode == "remote" else 15)
        finally:
            application.kill()
    assert 10 < rewards[0] < 40
    assert mode == "remote" or max(rewards) > rewards[0] + 15  # how fast depends on how old the weights are
