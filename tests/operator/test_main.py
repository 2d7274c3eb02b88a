"""The process itself: it ends when it is told to, whatever it waits for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import kopf
import pytest
import yaml

from reef_operator import main
from reef_operator.connection.client import ApiError, Client
from reef_operator.connection.credentials import Credentials, kubeconfig_login
from reef_operator.main import Operator
from reef_operator.model import Observed, Plan, Server
from reef_operator.options import parse
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.observer import Memory

LIMIT_S = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Of an API server that takes connections and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        yield path


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_sigterm_ends_an_operator_that_waits(kubeconfig: Path):
    health = free_port()
    ports = ["--listen", "127.0.0.1", "--metrics-port", str(free_port()), "--health-port", str(health)]
    command = [sys.executable, "-m", "reef_operator.main", "--dev", "--leader-election", *ports]
    process = subprocess.Popen(command, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    try:
        limit = time.monotonic() + LIMIT_S
        while not answers(health):
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0  # not killed by it
    finally:
        process.kill()
        process.wait(timeout=LIMIT_S)


async def operator_parts() -> Metrics:
    metrics = Metrics()
    async with Client(Credentials(kubeconfig_login)) as client:
        operator = Operator(parse([], {}), client, metrics)
        for _, part in operator.parts:
            part.close()  # nothing of it is to run
    return metrics


def test_every_watch_shows_its_age():
    registry = asyncio.run(operator_parts()).registry
    samples = [sample for family in registry.collect() for sample in family.samples]
    ages = {sample.labels["kind"]: sample.value for sample in samples if "watch_age" in sample.name}
    assert ages.keys() == {"Pod", "Job", "Deployment", "RLTrainingJob", "Lease"}
    assert max(ages.values()) < LIMIT_S


def test_jobs_of_a_closed_namespace_wait_and_do_not_make_the_operator_sick(monkeypatch: pytest.MonkeyPatch):
    async def test() -> list[tuple[str, str]]:
        async with Client(Credentials(kubeconfig_login)) as client:
            operator = Operator(parse(["--namespace", "open", "--namespace", "closed"], {}), client, Metrics())
            for _, part in operator.parts:
                part.close()
            for watch in operator.watches:
                watch.answered.set()
                if watch.namespace == "open":
                    watch.synced.set()
                else:
                    watch.heard -= 1000
            handled: list[tuple[str, str]] = []

            async def handle(key: tuple[str, str]) -> None:
                handled.append(key)

            operator.controller.handle = handle  # type: ignore[method-assign]
            for namespace in ("open", "closed"):
                await operator._handle((namespace, "j"))
            assert handled == [("open", "j")]
            assert max(operator._watch_ages().values()) > 999, "the metric tells of it"
            assert max(operator._watch_ages(closed=False).values()) < 999, "the probe does not"
            for watch in operator.watches:
                watch.synced.set()
            async with asyncio.timeout(10):
                await operator._handle(await operator.queue.get())
            return handled

    monkeypatch.setattr(main, "CLOSED_S", 0.2)
    assert asyncio.run(test()) == [("open", "j"), ("closed", "j")], "it comes again by itself"


def test_no_job_is_looked_at_before_the_server_has_said_what_it_can_do(monkeypatch: pytest.MonkeyPatch):
    """What a batch Job is made with depends on it, and cannot be changed later."""
    answers = iter([ApiError(503, "", "not yet"), Server(minor=30)])
    seen: list[Observed] = []

    async def server() -> Server:
        answer = next(answers, Server(minor=30))
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def login() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server="http://127.0.0.1:1")

    async def until_seen() -> None:
        operator = Operator(parse([], {}), Client(Credentials(login)), Metrics())
        parts = dict(operator.parts)
        work = asyncio.create_task(parts.pop("work"))
        for part in parts.values():
            part.close()  # nothing else is to run
        monkeypatch.setattr(operator.client, "server", server)
        monkeypatch.setattr(operator.controller, "_decide", lambda situation: seen.append(situation.observed) or Plan())
        for watch in operator.watches:
            watch.synced.set()
            watch.answered.set()
        operator.stores.jobs.put({"metadata": {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "1"}})
        operator.queue.add(("ns", "j"))
        async with asyncio.timeout(LIMIT_S):
            while not seen:
                await asyncio.sleep(0.01)
        work.cancel()

    asyncio.run(until_seen())
    assert seen[0].server.pod_failure_policy


def test_jobs_that_come_all_at_once_do_not_hide_what_happens_to_those_at_work():
    def found(name: str, **labels: str) -> dict[str, dict[str, object]]:
        return {"metadata": {"namespace": "ns", "name": name, "uid": f"u-{name}", "labels": labels}}

    async def order() -> list[str]:
        async with Client(Credentials(kubeconfig_login)) as client:
            operator = Operator(parse([], {}), client, Metrics())
            for _, part in operator.parts:
                part.close()
            operator.stores.jobs.put(found("at-work"))
            operator.controller._memories["ns", "at-work"] = Memory("u-at-work")
            for number in range(3):
                operator.stores.jobs.put(found(f"new-{number}"))
                operator._job_changed(found(f"new-{number}"))
            operator._child_changed(found("at-work-head", **{"reef.dev/job": "at-work"}))
            return [(await operator.queue.get())[1] for _ in range(4)]

    assert asyncio.run(order()) == ["at-work", "new-0", "new-1", "new-2"]
