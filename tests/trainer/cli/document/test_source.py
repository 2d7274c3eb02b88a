"""`reef train file`: job documents behind an address, Python files with `config` and `stop`."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from reef.api.limits import MAX_BYTES
from reef.cli import train
from reef.cli.document import source
from reef.cli.main import main
from reef.config.loading import LAST_FOLDER

DOCUMENT = yaml.safe_dump(
    {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "far"},
        "spec": {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": {"training_iteration": 1}},
    }
)


class Server(BaseHTTPRequestHandler):
    """Answers by the path that is asked for."""

    def do_GET(self) -> None:
        if self.path == "/slow.yaml":
            time.sleep(1.0)
        answers = {"/job.yaml": DOCUMENT.encode(), "/moved.yaml": b"", "/large.yaml": b"#" * (MAX_BYTES + 1)}
        answers |= {"/binary.yaml": b"\xff\xfe", "/cut.yaml": DOCUMENT.encode(), "/job.py": b"raise ValueError"}
        body = answers.get(self.path, b"")
        self.send_response(302 if self.path == "/moved.yaml" else 200 if self.path in answers else 404)
        self.send_header("Location", "/job.yaml")
        self.send_header("Content-Length", str(len(body) + 100 * (self.path == "/cut.yaml")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on the screen."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Stand in for the training: (job, stop) of every one that would start; what running Python leaves is undone."""
    found: list[tuple[Any, Any]] = []

    def run_job(job: Any, options: Any, *, stop: Any = None) -> int:
        found.append((job, stop))
        return 0

    monkeypatch.setattr(train, "run_job", run_job)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setenv(LAST_FOLDER, "")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(source, "TIMEOUT_S", 0.2)
    return found


@pytest.mark.parametrize("path", ["/job.yaml", "/moved.yaml"])
def test_a_document_is_fetched(server: str, path: str, started: list[tuple[Any, Any]]) -> None:
    assert main(["train", "file", server + path, "--set", "config.lr=0.5"]) == 0
    ((job, stop),) = started
    assert (job.metadata.name, job.spec.config, stop) == ("far", {"lr": 0.5}, None)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("{server}/nothing.yaml", "the server answers 404"),
        ("{server}/large.yaml", "has over 262144 bytes"),
        ("{server}/binary.yaml", "is no UTF-8 text"),
        ("{server}/cut.yaml", "was cut off, 100 bytes are missing"),
        ("{server}/slow.yaml", "cannot be fetched: timed out"),
        ("{server}/job.py", "Python from elsewhere is not run"),
        ("http://127.0.0.1:1/job.yaml", "cannot be fetched"),
        ("http://[/job.yaml", "cannot be fetched"),
        ("file:///etc/passwd", "addresses begin with http"),
        ("s3://bucket/job.yaml", "addresses begin with http"),
    ],
)
def test_what_cannot_be_fetched_is_one_message_and_exit_code_2(
    server: str, address: str, expected: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    kind = ["--type", "yaml"] if "[" in address else []
    assert main(["train", "file", address.format(server=server), *kind]) == 2
    assert expected in capsys.readouterr().err
    assert started == []


def write(folder: Path, text: str, name: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return str(folder / f"{name}.py")


AS_CONFIG = """
from reef import PPOConfig
config = PPOConfig().environment("CartPole-v1", env_config={"a": 1}).training(lr=0.5, model={"fcnet_hiddens": [8]})
"""
AS_DICT = """
config = {"algorithm": "ppo", "env": "CartPole-v1", "env_config": {"a": 1}, "lr": 0.5, "model": {"fcnet_hiddens": [8]}}
"""


@pytest.mark.parametrize("text", [AS_CONFIG, AS_DICT])
def test_python_says_what_is_trained(text: str, started: list[tuple[Any, Any]], tmp_path: Path) -> None:
    name = f"my_Experiment_{len(text)}"
    path = write(tmp_path, text + "stop = {'training_iteration': 3}\n", name)
    assert main(["train", "file", path, "--set", "config.gamma=0.5"]) == 0
    ((job, stop),) = started
    assert (job.metadata.name, job.spec.algorithm) == (name.lower().replace("_", "-"), "PPO")
    assert (job.spec.environment.name, job.spec.environment.config) == ("CartPole-v1", {"a": 1})
    assert (job.spec.config["lr"], job.spec.config["gamma"]) == (0.5, 0.5)
    assert job.spec.config["model"]["fcnet_hiddens"] == [8]
    assert (job.spec.stop, stop) == ({"training_iteration": 3}, None)


@pytest.mark.parametrize("settings", ["Settings", "Own.config_class"])
def test_python_trains_the_algorithm_that_it_defines(
    settings: str, started: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    text = (
        "from reef.algorithms.ppo import PPO, PPOConfig\n"
        "class Settings(PPOConfig): algorithm = 'MINE'\n"
        "class Own(PPO): config_class = Settings\n"
        f"config = {settings}().environment('CartPole-v1')\n"
    )
    name = f"own_{settings[:3].lower()}"
    assert main(["train", "file", write(tmp_path, text, name)]) == 0
    assert started[0][0].spec.algorithm == f"{name}:Own"


def test_python_without_stop_goes_on_until_ctrl_c_or_what_set_says(
    started: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    assert main(["train", "file", write(tmp_path, AS_CONFIG, "without_stop")]) == 0
    path = write(tmp_path, AS_CONFIG, "with_set")
    assert main(["train", "file", path, "--set", "stop.training_iteration=4"]) == 0
    assert started[0][1] == {}
    assert (started[1][0].spec.stop, started[1][1]) == ({"training_iteration": 4}, None)


def test_a_grid_in_a_configuration_makes_a_sweep(started: list[tuple[Any, Any]], tmp_path: Path) -> None:
    text = """
from reef import PPOConfig
grid = {"grid_search": [0.1, 0.2]}
widths = {"grid_search": [[8], [16]]}
config = PPOConfig().environment("CartPole-v1").training(lr=grid, model={"fcnet_hiddens": widths})
"""
    assert main(["train", "file", write(tmp_path, text, "with_grid")]) == 0
    tune = started[0][0].spec.tune
    assert {key: parameter.grid for key, parameter in tune.parameters.items()} == {
        "lr": [0.1, 0.2],
        "model.fcnet_hiddens": [[8], [16]],
    }


def test_the_environment_may_come_from_set(started: list[tuple[Any, Any]], tmp_path: Path) -> None:
    path = write(tmp_path, "config = {'algorithm': 'PPO'}", "env_from_set")
    assert main(["train", "file", path, "--set", "environment.name=Acrobot-v1"]) == 0
    assert started[0][0].spec.environment.name == "Acrobot-v1"


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("", "without_config", "its `config` is NoneType"),
        ("config = 3", "with_number", "its `config` is int"),
        ("config = {'lr': 1}", "without_algorithm", "names no algorithm"),
        ("config = {'algorithm': 'PPPO'}", "misspelt", "Did you mean 'PPO'?"),
        ("config = {'algorithm': 'PPO', 'lrr': 1}", "misspelt_key", "Did you mean 'lr'?"),
        ("from reef import PPOConfig\nconfig = PPOConfig().training(lrr=1)", "misspelt_call", "call.py, line 2: "),
        ("from reef import PPOConfig\nconfig = PPOConfig()", "without_env", ".environment('CartPole-v1')"),
        ("config = {'algorithm': 'PPO'}", "dict_without_env", "its `config` has env=None, which is no environment"),
        (f"{AS_CONFIG}stop = {{'episode_reward_men': 1}}", "wrong_stop", "Did you mean 'episode_reward_mean'?"),
        (f"{AS_CONFIG}stop = 3", "number_as_stop", "stop: "),
        ("config = = 3", "wrong_syntax", "wrong_syntax.py, line 1: SyntaxError: invalid syntax"),
        ("x = 1\n1 / 0", "divides", "divides.py, line 2: ZeroDivisionError"),
        ("", "json", "'json' cannot be the name of a module"),
        ("", "safetensors", "'safetensors' cannot be the name of a module"),
        ("", "pandas", "'pandas' cannot be the name of a module"),  # installed, and imported by nobody
        ("", "no-name", "'no-name' cannot be the name of a module"),
    ],
)
def test_wrong_python_is_one_message_and_exit_code_2(
    text: str, name: str, expected: str, started: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "file", write(tmp_path, text, name)]) == 2
    assert expected in capsys.readouterr().err
    assert started == []


def test_the_type_is_that_of_the_name_or_what_is_said(
    started: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "file", write(tmp_path, DOCUMENT, "yaml_in_py"), "--type", "yaml"]) == 0
    assert len(started) == 1
    (tmp_path / "job.yaml").write_text(DOCUMENT)
    assert main(["train", "file", str(tmp_path / "job.yaml"), "--type", "python"]) == 2
    assert "whose name ends in .py" in capsys.readouterr().err
    assert main(["train", "file", str(tmp_path / "missing.py")]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert main(["train", "--algo", "PPO", "--env", "X", "--type", "yaml"]) == 2
    assert "--type yaml: says what a file is" in capsys.readouterr().err


OWN_ENVIRONMENT = """
import gymnasium as gym
from beside import STEPS
from reef import PPOConfig

class Short(gym.Wrapper):
    def __init__(self, config):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=STEPS))

config = PPOConfig().environment(Short).training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
config.rollouts(num_rollout_workers={workers})
stop = {{"training_iteration": 1}}
"""


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.ray)])
def test_an_environment_of_the_file_itself_is_trained(workers: int, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    path = write(folder, OWN_ENVIRONMENT.format(workers=workers), "own_environment")
    write(folder, "STEPS = 9", "beside")
    for name in ("random", "secrets", "torch", "ray"):  # one that Python or a package has stays theirs
        write(folder, "raise SystemExit('not this one')", name)
    command = [sys.executable, "-m", "reef", "train", "file", path, "--storage-path", str(tmp_path / "results")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    told = next(line for line in child.stdout.splitlines() if " reef evaluate " in line)
    command = ["sh", "-c", f"{told.replace(' reef ', f' {shlex.quote(sys.executable)} -m reef ')} --no-explore"]
    after = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (after.returncode, after.stderr) == (0, "")
    assert len(list((tmp_path / "results").glob("own-environment/PPO_*/checkpoint_000001"))) == 1


def dripping(connection: socket.socket, begin: bytes) -> None:
    """Send this, and then one byte after the other, for ever."""
    with contextlib.suppress(OSError):
        connection.sendall(begin)
        while True:
            connection.sendall(b"a")
            time.sleep(0.05)


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 OK\r\nX-Header: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["headers", "body"]
)
def test_an_answer_that_comes_byte_by_byte_is_given_up(
    begin: bytes, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source, "TIMEOUT_S", 30.0)  # each byte comes in time
    monkeypatch.setattr(source, "TOTAL_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections: list[socket.socket] = []

        def serve() -> None:
            connections.append(listener.accept()[0])
            dripping(connections[0], begin)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        began = time.monotonic()
        assert main(["train", "file", f"http://127.0.0.1:{listener.getsockname()[1]}/job.yaml"]) == 2
        assert time.monotonic() < began + 5
        connections[0].shutdown(socket.SHUT_RDWR)
        connections[0].close()
        thread.join(10)
    assert "did not arrive within 0.5 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "http://user:SECRET@127.0.0.1:1/job.yaml",
        "http://127.0.0.1:1/job.yaml?X-Amz-Signature=SECRET&x=1",
        "http://127.0.0.1:1/job.yaml?sig=SECRET",
        "http://user:SECRET@[/job.yaml",
        "http://user:SECRET@host/job.yaml",
        "http://user:'SECRET@127.0.0.1:1/job.yaml",
        "{server}/nothing.yaml?sig=SECRET",
        "{server}/binary.yaml?sig=SECRET",
        "{server}/cut.yaml?sig=SECRET",
        "{server}/large.yaml?sig=SECRET",
        "{server}/job.py?sig=SECRET",
        "{server}/wrong.yaml?sig=SECRET",
        "ftp://user:SECRET@host/job.yaml?sig=SECRET",
    ],
)
def test_addresses_are_shown_without_their_secrets(
    server: str, address: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "file", address.format(server=server), "--type", "yaml", "-vv"]) == 2
    said = capsys.readouterr()
    assert "SECRET" not in said.out + said.err
    assert "job.yaml" in said.err or "/" in said.err
