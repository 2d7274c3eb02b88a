"""The operator's program against an API server in memory: many jobs, and jobs that are made to harm it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer, Asked

LIMIT_S = 60
JOBS = "/apis/reef.dev/v1/namespaces/{}/rltrainingjobs/{}"
MANY = 5000
SOON_S = 5.0  # with room for a loaded machine; without, it is a tenth of a second
MIB = 2**20


@dataclass
class Program:
    """A running operator."""

    process: subprocess.Popen[bytes]
    metrics_port: int
    health_port: int

    def health(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def peak_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def until(self, what: str, holds: Callable[[], Any]) -> None:
        limit = time.monotonic() + LIMIT_S
        while not holds():
            assert self.process.poll() is None, "the operator has ended"
            assert time.monotonic() < limit, f"never happened: {what}"
            time.sleep(0.02)


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@contextlib.contextmanager
def operator(server: ApiServer, folder: Path, *flags: str) -> Iterator[Program]:
    """The operator's program, once it works on jobs."""
    with server.serving(folder) as kubeconfig, contextlib.ExitStack() as probes:
        ports = []
        for _ in range(2):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
        probes.close()
        command = [sys.executable, "-m", "reef_operator.main", "--dev", "--listen", "127.0.0.1", *flags]
        command += ["--metrics-port", str(ports[0]), "--health-port", str(ports[1]), "--log-format", "text"]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": "reef-system"}
        process = subprocess.Popen(command, env=environment)
        try:
            program = Program(process, *ports)
            program.until("it works on jobs", lambda: any(each.path == "/version" for each in server.asked))
            yield program
            assert process.poll() is None, "the operator has ended"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(20) == 0, "it does not end in order"
            finally:
                process.kill()


def job(namespace: str, name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Path and fields of an RLTrainingJob without a spec."""
    metadata = {"namespace": namespace, "name": name, "generation": 1, **fields}
    return JOBS.format(namespace, name), {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": metadata}


def spec(environment: str = "{}", config: str = "{}", **more: str) -> str:
    """A spec as JSON text."""
    given = {"environment": f'{{"name": "CartPole-v1", "config": {environment}}}', "config": config, **more}
    fields = ", ".join(f'"{key}": {text}' for key, text in given.items())
    return f'{{"algorithm": "PPO", "stop": {{"training_iteration": 3}}, {fields}}}'


def first_write(program: Program, server: ApiServer, since: float, *words: str) -> Asked:
    """The operator's first write to a path of these words after a moment."""
    found: list[Asked] = []

    def there() -> bool:
        found[:] = [each for each in server.writes(*words) if each.time >= since]
        return bool(found)

    program.until(f"a write to {words}", there)
    return found[0]


def refusal(server: ApiServer, path: str) -> str:
    """Why a job is Invalid; empty when it is not."""
    status = server.get(path).get("status") or {}
    return str(status.get("message")) if status.get("phase") == "Invalid" else ""


@pytest.mark.timeout(180)
def test_beside_5000_jobs_that_all_change_a_new_job_and_an_edit_are_acted_on_at_once(
    server: ApiServer, tmp_path: Path
) -> None:
    crowd = [job("crowd", f"j{number}", deletionTimestamp="2026-01-01T00:00:00Z") for number in range(MANY)]
    with operator(server, tmp_path) as program:
        for path, fields in crowd:
            server.put(path, fields, spec())  # they go, so that nothing but the watch has work with them
        for path, fields in crowd:
            server.put(path, {**fields, "status": {"phase": "Running"}}, spec())
        path, fields = job("small", "new")
        begun = time.monotonic()
        server.put(path, fields, spec())
        assert first_write(program, server, begun, "/small/", "new").time - begun < SOON_S
        program.until("its head", lambda: server.get("/apis/batch/v1/namespaces/small/jobs/new-head"))
        suspended = {**server.get(path), "metadata": {**server.get(path)["metadata"], "generation": 2}}
        begun = time.monotonic()
        server.put(path, suspended, spec(suspend="true"))
        assert first_write(program, server, begun, "/small/", "new").time - begun < SOON_S
        assert program.health() == 200
        assert program.metric("reef_operator_queue_depth") < 10


@pytest.mark.timeout(180)
@pytest.mark.parametrize("depth", [70, 500, 975, 9000])
def test_a_job_that_is_nested_too_deeply_is_refused_and_ends_nothing(
    server: ApiServer, tmp_path: Path, depth: int
) -> None:
    (deep, fields), other, later = job("evil", "deep"), job("good", "other"), job("good", "later")
    text = spec(environment='{"a": ' * depth + "1" + "}" * depth)
    server.put(deep, fields, text)  # there before the operator is
    server.put(*other, spec())
    with operator(server, tmp_path) as program:
        program.until("the refusal", lambda: refusal(server, deep))
        assert "nested more than 64 levels" in refusal(server, deep)
        program.until("an Event", lambda: server.writes("/evil/events"))
        assert "64 levels" in server.writes("/evil/events")[0].body["message"]
        program.until("the other job's head", lambda: server.get("/apis/batch/v1/namespaces/good/jobs/other-head"))
        begun = time.monotonic()
        server.put(deep, server.get(deep), text)  # by the watch too
        server.put(*later, spec())
        first_write(program, server, begun, "/good/", "later")
        assert program.health() == 200


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("keys", "reason"), [(1_000, "and 990 more"), (4_000, "has 4000 entries"), (40_000, "more than 10,000")]
)
def test_a_job_of_thousands_of_unknown_keys_holds_up_no_other(
    server: ApiServer, tmp_path: Path, keys: int, reason: str
) -> None:
    (wrong, fields), other = job("evil", "wrong"), job("good", "other")
    with operator(server, tmp_path) as program:
        server.put(wrong, fields, spec(config="{" + ", ".join(f'"nun_worker{n}": {n}' for n in range(keys)) + "}"))
        begun = time.monotonic()
        server.put(*other, spec())
        assert first_write(program, server, begun, "/good/", "other").time - begun < SOON_S
        program.until("the refusal", lambda: refusal(server, wrong))
        said = refusal(server, wrong)
        assert reason in said and len(said) < 2000, said


@pytest.mark.timeout(180)
def test_edits_of_jobs_as_large_as_they_may_be_hold_up_no_other(server: ApiServer, tmp_path: Path) -> None:
    text = spec(environment=json.dumps({"x": [{"a": {"b": {}}}] * 3300}))
    large = [job("evil", f"large{number}") for number in range(10)]
    with operator(server, tmp_path) as program:
        for path, fields in large:
            server.put(path, fields, text)
        program.until("a head of each", lambda: len(server.writes("/evil/jobs")) >= len(large))
        for path, _ in large:
            server.put(path, server.get(path), text)  # all at once, and nothing about them has changed
        begun = time.monotonic()
        server.put(*job("good", "other"), spec())
        program.until("its head", lambda: server.get("/apis/batch/v1/namespaces/good/jobs/other-head"))
        assert time.monotonic() - begun < 2 * SOON_S
        assert program.health() == 200


@pytest.mark.timeout(180)
def test_twelve_jobs_of_over_a_mebibyte_take_little_memory(server: ApiServer, tmp_path: Path) -> None:
    config = "{" + ", ".join(f'"key{number:06d}": [{number}, {{}}]' for number in range(55_000)) + "}"
    assert len(config) > 1.2e6
    jobs = [job("evil", f"big{number}") for number in range(12)]
    for path, fields in jobs:
        server.put(path, fields, spec(environment=config))
    with operator(server, tmp_path) as program:
        for path, _ in jobs:
            program.until("the refusal", lambda: "more than 10,000" in refusal(server, path))  # noqa: B023
        for path, _ in jobs:
            server.put(path, server.get(path), spec(environment=config))
        server.put(*job("good", "other"), spec())
        program.until("the other job's head", lambda: server.get("/apis/batch/v1/namespaces/good/jobs/other-head"))
        peak = program.peak_bytes() / MIB
        print(f"peak {peak:.0f} MiB")
        assert peak < 200, f"{peak:.0f} MiB"
