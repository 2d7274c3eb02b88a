"""`reef serve`: a real process, and wrong use."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from finished import checkpoint_of, ppo

from reef.cli.main import main
from reef.serving.server import FinishedPolicyServer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint_of(ppo(), tmp_path_factory.mktemp("serve") / "c")


def test_it_serves_until_sigterm_and_ends_with_0(checkpoint: str) -> None:
    command = [sys.executable, "-m", "reef", "serve", checkpoint, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(120, process.kill)
        timer.start()
        try:
            said = process.stdout.readline()
            address = re.fullmatch(rf"policy default_policy of {re.escape(checkpoint)} at (http://\S+:\d+)\n", said)[1]
            body = json.dumps({"observation": [0.0, 0.1, 0.2, 0.3]}).encode()
            request = urllib.request.Request(f"{address}/v1/actions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.load(answer)["action"] in (0, 1)
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=60)
        finally:
            timer.cancel()
            process.kill()
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "nowhere"),
        (["{checkpoint}", "--policy", "other"], "PolicyID 'other' not found; there is ['default_policy']"),
        (
            ["{checkpoint}", "--port", "{taken}"],
            "cannot listen there: Address already in use. Give another, or --port 0",
        ),
        (
            ["{checkpoint}", "--host", "no.such.host.invalid"],
            "--host no.such.host.invalid --port 8000: cannot listen there",
        ),
        (
            ["{checkpoint}", "--token-env", "NOT_THERE"],
            "token_env='NOT_THERE': the environment variable holds no token",
        ),
        (["{checkpoint}", "--token-env", "A", "--token-file", "b"], "give one of them"),
        (["{checkpoint}", "--port", "70000"], "argument --port: '70000': expected a whole number from 0 to 65535"),
        (["{checkpoint}", "--max-queued", "0"], "argument --max-queued: '0': expected a whole number above 0"),
        ([], "the following arguments are required: checkpoint"),
    ],
)
def test_wrong_use_is_named(
    checkpoint: str, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = [each.format(checkpoint=checkpoint, taken=port) for each in arguments]
        assert main(["serve", *given, *([] if "--port" in given or "--host" in given else ["--port", "0"])]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "with_token", "warned"), [("0.0.0.0", False, True), ("0.0.0.0", True, False), ("127.0.0.1", False, False)]
)
def test_an_open_address_without_a_token_is_warned_of(
    checkpoint: str,
    host: str,
    with_token: bool,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def run(self: FinishedPolicyServer, sock: Any, ready: Any) -> None:
        ready()

    monkeypatch.setattr(FinishedPolicyServer, "run", run)
    (tmp_path / "token").write_text("secret")
    token = ["--token-file", str(tmp_path / "token")] if with_token else []
    assert main(["serve", checkpoint, "--host", host, "--port", "0", *token]) == 0
    said = capsys.readouterr()
    assert f"at http://{host}:" in said.out
    assert ("there is no token, so that everybody who reaches it gets actions. Give --token-env" in said.err) is warned


def test_a_page_needs_a_token_where_others_reach_it(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", checkpoint, "--play", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "--play --host 0.0.0.0: without a token everybody who reaches it could run" in capsys.readouterr().err


def test_the_page_is_named(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(self: FinishedPolicyServer, sock: Any, ready: Any) -> None:
        ready()

    monkeypatch.setattr(FinishedPolicyServer, "run", run)
    (tmp_path / "token").write_text("secret")
    for more in (["--host", "0.0.0.0", "--token-file", str(tmp_path / "token")], []):
        assert main(["serve", checkpoint, "--play", "--port", "0", *more]) == 0
        assert re.search(r"at (http://\S+)\nit plays at \1/play\n", capsys.readouterr().out)


def test_connections_beyond_the_limit_of_files_are_refused(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", checkpoint, "--port", "0", "--max-connections", str(10**9)]) == 2
    assert "--max-connections 1000000000: each connection is a file" in capsys.readouterr().err
