"""Pods as processes on the loopback network: each with an address of its own, killed as a whole, as a pod is."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reef.distributed.node_settings import address_of

STORE = 100 << 20  # bytes


def descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def wait_until(what: str, condition: Callable[[], Any], limit_s: float = 120.0) -> Any:
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {limit_s:g} s for {what}"
        time.sleep(0.05)
    return value


class Pod:
    """A running `python -m reef.job.<role>`."""

    def __init__(self, python: Path, role: str, environment: dict[str, str], log: Path) -> None:
        self.log, self.termination = log, Path(environment.get("REEF_TERMINATION_LOG", ""))
        with log.open("ab") as output:
            command = [python, "-m", f"reef.job.{role}"]
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def kill(self) -> None:
        """As when its node is lost: nothing in it has a chance to say goodbye."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)

    def ends(self, limit_s: float = 120.0) -> int:
        return self.process.wait(limit_s)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ending(self) -> dict[str, Any]:
        data = self.termination.read_bytes()
        assert len(data) <= 4096
        return json.loads(data)


class Job:
    """The pods of one job; `address` is that of its head."""

    wait_until = staticmethod(wait_until)
    descendants = staticmethod(descendants)

    def __init__(self, python: Path, folder: Path, temporary: str) -> None:
        self.python, self.folder, self._temporary = python, folder, temporary
        self._net = f"127.{20 + os.getpid() % 200}.{secrets.randbelow(250)}"
        self.address = f"{self._net}.1"
        self.gcs_port, self.http_port = self._free_port(), self._free_port()
        self._token = secrets.token_hex(32)
        self.pods: list[Pod] = []

    def _free_port(self) -> int:
        """A port below those that processes are given by chance: a new head is to have it again."""
        while True:
            port = 10_000 + secrets.randbelow(20_000)
            with contextlib.suppress(OSError), socket.create_server((self.address, port)):
                return port

    def on(self, address: str) -> None:
        """Have all pods at one address, where there is no other of its kind."""
        self.address = self._net = address

    def _start(self, role: str, ip: str, name: str, more: dict[str, str]) -> Pod:
        own = {
            "POD_IP": ip,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "RAY_TMPDIR": tempfile.mkdtemp(dir=self._temporary),  # a pod has one of its own
            "REEF_GCS_PORT": str(self.gcs_port),
            "REEF_METRICS_PORT": str(self.http_port),
            "REEF_OBJECT_STORE_BYTES": str(STORE),
            "REEF_CPUS": "1",
        }
        pod = Pod(self.python, role, os.environ | own | more, self.folder / f"{name}.log")
        self.pods.append(pod)
        return pod

    def head(self, document: dict[str, Any], **more: str) -> Pod:
        job_file = self.folder / "job.json"
        job_file.write_text(json.dumps(document))
        return self._start(
            "head",
            self.address,
            "head",
            {
                "REEF_JOB_FILE": str(job_file),
                "REEF_STORAGE_PATH": str(self.folder / "storage"),
                "REEF_TERMINATION_LOG": str(self.folder / "ending.json"),
                "REEF_START_PATIENCE_SECONDS": "0",
                "REEF_NAMESPACE": "team",
                "REEF_JOB_NAME": "cart",
                "REEF_JOB_UID": "u1",
                **more,
            },
        )

    def worker(self, number: int, pool: str = "cpu", **more: str) -> Pod:
        return self._start(
            "worker",
            self.address if self._net == self.address else f"{self._net}.{1 + number}",
            f"worker{number}",
            {
                "REEF_HEAD_ADDRESS": address_of(self.address, self.gcs_port),
                "REEF_POOL": pool,
                "REEF_JOINED_FILE": str(self.joined(number)),
                **more,
            },
        )

    def joined(self, number: int) -> Path:
        return self.folder / f"joined{number}"

    def get(self, path: str) -> str:
        """What the head answers; "" where it does not yet."""
        connection = http.client.HTTPConnection(self.address, self.http_port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    def helpers(self) -> list[str]:
        """Processes of Ray in the pods that nobody needs."""
        lines = [
            Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
            for pod in self.pods
            for pid in descendants(pod.process.pid)
            if Path(f"/proc/{pid}").exists()
        ]
        assert any("gcs_server" in line for line in lines)
        return [line for line in lines if "client.server" in line or "monitor.py" in line]

    def progress(self) -> dict[str, Any]:
        return json.loads(self.get("/progress") or "{}")

    def wait_for(self, what: str, condition: Callable[[dict[str, Any]], Any], limit_s: float = 120.0) -> dict[str, Any]:
        def holds() -> dict[str, Any] | None:
            progress = self.progress()
            return progress if progress and condition(progress) else None

        try:
            return wait_until(what, holds, limit_s)
        except AssertionError as error:
            logs = "\n".join(f"--- {pod.log.name}\n{pod.said[-3000:]}" for pod in self.pods)
            raise AssertionError(f"{error}; last progress {self.progress()}\n{logs}") from None


@pytest.fixture
def job(ray_python: Path, tmp_path: Path) -> Iterator[Job]:
    """A job whose pods all end with the test."""
    temporary = tempfile.mkdtemp(prefix="rj", dir="/tmp")  # short: Ray puts sockets into it
    made = Job(ray_python, tmp_path, temporary)
    yield made
    for pod in made.pods:
        if pod.process.poll() is None:
            pod.kill()
    shutil.rmtree(temporary, ignore_errors=True)


def document(**spec: Any) -> dict[str, Any]:
    """A job document with small batches; `config` and `workers` are merged over it."""
    config = {"train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 1, "seed": 1}
    base: dict[str, Any] = {
        "algorithm": "PPO",
        "environment": {"name": "CartPole-v1"},
        "stop": {"training_iteration": 1_000_000},
        "checkpoint": {"frequency": 5},
        "faultTolerance": {"terminationGracePeriodSeconds": 10},
    }
    config |= spec.pop("config", {})
    metadata = {"name": "cart", "namespace": "team", "uid": "u1"}
    made = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": metadata}
    return made | {"spec": base | {"config": config} | spec}


@pytest.fixture(name="document")
def document_fixture() -> Callable[..., dict[str, Any]]:
    """Makes job documents."""
    return document
