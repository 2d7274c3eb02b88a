"""The program examples/external_cartpole.py: a server, and an application in a process of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NODE = shutil.which("node")
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


@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
def test_the_application_in_another_language_needs_no_global_that_node_18_lacks() -> None:
    program = f"delete globalThis.crypto; import('{(FOLDER / 'external_cartpole.mjs').as_uri()}')"
    subprocess.run(
        [str(NODE), "-e", program, "program", "http://127.0.0.1:1", "0"], check=True, timeout=60
    )  # 0 episodes


@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
def test_an_application_in_another_language_speaks_the_protocol(example: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(NODE), str(FOLDER / "external_cartpole.mjs"), f"http://127.0.0.1:{port}", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as application:
        try:
            rewards = example("external_cartpole")["serve"](port, 2)
        finally:
            application.kill()
        played = [int(line.split()[2]) for line in application.stdout or ()]
    assert 10 < rewards[0] < 40
    assert 10 < sum(played[:20]) / 20 < 40
