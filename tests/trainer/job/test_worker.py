"""What a worker takes for its head, for another one and for none; whole workers are in test_pods.py."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reef.errors import EXIT_FAILED, ReefError
from reef.job import worker
from reef.job.cluster import REFUSED, Node, RayProcess
from reef.job.progress import HeadState
from reef.job.worker import Pod, Worker
from reef.run.prometheus import MetricsServer


class Head:
    """The two ports of a head."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.state = HeadState()
        self.http = MetricsServer(self.state, 0, address)
        self.gcs = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.setattr(worker, "LOOK_AGAIN_S", 0.05)
    made = Head()
    yield made
    made.gcs.close()
    made.http.stop()  # again where a test has done so, which is no error


@pytest.fixture
def ray() -> Iterator[RayProcess]:
    process = RayProcess([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.stop()


def worker_of(head: Head, folder: Path, host: str = "localhost") -> Worker:
    node = Node(ip="127.0.0.1", cpus=1, gpus=0, object_store=None)
    gcs_port = head.gcs.getsockname()[1]
    ports = {"gcs_port": gcs_port, "http_port": head.http.port}
    pod = Pod(node=node, pool="a", host=host, takes_workers=True, joined_file=folder / "joined", **ports)
    return Worker(pod, threading.Event())


def test_a_head_is_found_when_it_answers_on_both_ports(head: Head, tmp_path: Path) -> None:
    found = worker_of(head, tmp_path).find_head()
    assert found is not None
    assert (found.ip, found.identity) == ("127.0.0.1", head.state.identity)
    assert worker_of(head, tmp_path, host="no-such-host.invalid").find_head() is None
    alone = worker_of(head, tmp_path)
    head.gcs.close()
    assert alone.find_head() is None


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="a kernel without IPv6")
def test_a_head_of_ipv6_is_found(tmp_path: Path) -> None:
    head = Head("::1")
    found = worker_of(head, tmp_path, host="::1").find_head()
    assert found == worker.Head("::1", head.state.identity)
    head.gcs.close()
    head.http.stop()


def test_the_address_of_a_head_may_be_of_ipv6() -> None:
    environment = {
        "POD_IP": "fd00::2",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "REEF_HEAD_ADDRESS": "[fd00::1]:6379",
        "REEF_POOL": "cpu",
    }
    pod = Pod.of(environment)
    assert (pod.host, pod.gcs_port, pod.takes_workers) == ("fd00::1", 6379, True)
    assert not Pod.of(environment | {"REEF_TAKES_WORKERS": "0"}).takes_workers


def stays(one: Worker, head: Head, ray: RayProcess) -> threading.Thread:
    found = one.find_head()
    assert found is not None
    thread = threading.Thread(target=one.stay, args=(ray, found))
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive(), "it stays while nothing happens"
    return thread


def test_another_life_at_the_same_address_is_noticed(head: Head, ray: RayProcess, tmp_path: Path) -> None:
    thread = stays(worker_of(head, tmp_path), head, ray)
    head.state.identity = "another"
    thread.join(5)
    assert not thread.is_alive()
    head.http.stop()


def test_a_head_is_found_among_the_addresses_of_earlier_ones(
    head: Head, ray: RayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers at the first address."""
    monkeypatch.setattr(worker, "addresses_of", lambda host: ["127.0.0.2", "127.0.0.1"])
    one = worker_of(head, tmp_path)
    thread = stays(one, head, ray)
    one.stopping.set()
    thread.join(5)
    head.http.stop()


def test_a_head_that_is_not_named_any_more_is_left_for_the_one_that_is(
    head: Head, ray: RayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it may live on, out of Kubernetes' sight; while both are named, the present one stays."""
    monkeypatch.setattr(worker, "MISSES", 1_000)
    names = ["127.0.0.2", "127.0.0.1"]
    monkeypatch.setattr(worker, "addresses_of", lambda host: names)
    one = worker_of(head, tmp_path)
    thread = threading.Thread(target=one.stay, args=(ray, worker.Head("127.0.0.2", "earlier")))
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive(), "slow to answer is not replaced"
    looks = [["127.0.0.1"], names, ["127.0.0.1"], ["127.0.0.1"]]  # a copy of the DNS that is ahead, and behind
    monkeypatch.setattr(worker, "addresses_of", lambda host: looks.pop(0) if looks else ["127.0.0.1"])
    thread.join(10)
    assert not looks, "one look is not enough"
    assert not thread.is_alive()
    head.http.stop()


def test_heads_that_refused_are_asked_last(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' heads may have their addresses by now; when all have refused, it begins anew."""
    asked: list[str] = []

    def identity_at(ip: str, port: int) -> str:
        asked.append(ip[-1])
        return "someone"

    def refused(ray: RayProcess) -> bool:
        if len(asked) == 5:
            one.stopping.set()
        return False

    monkeypatch.setattr(worker, "addresses_of", lambda host: ["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    monkeypatch.setattr(worker, "identity_at", identity_at)
    monkeypatch.setattr(worker, "is_open", lambda ip, port: True)
    monkeypatch.setattr(worker, "RayProcess", lambda command: RayProcess([sys.executable, "-c", ""]))
    one = worker_of(head, tmp_path)
    monkeypatch.setattr(one, "join", refused)
    one.run()
    assert asked == ["1", "2", "3", "1", "2"]
    head.http.stop()


def test_a_token_that_is_always_refused_ends_the_container_which_begins_again_with_that_of_now(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = [sys.executable, "-c", f"print({REFUSED!r}, flush=True); import time; time.sleep(600)"]
    monkeypatch.setattr(worker, "RayProcess", lambda command: RayProcess(refusing))
    monkeypatch.setattr(worker, "LOOK_AGAIN_S", 0.01)
    with pytest.raises(ReefError, match="refused 5 times in a row") as caught:
        worker_of(head, tmp_path).run()
    assert caught.value.exit_code == EXIT_FAILED
    head.http.stop()


def test_a_head_is_gone_when_ray_is_and_not_when_it_answers_slowly(head: Head, ray: RayProcess, tmp_path: Path) -> None:
    thread = stays(worker_of(head, tmp_path), head, ray)
    head.http.stop()
    time.sleep(0.5)
    assert thread.is_alive(), "Ray's port still answers"
    head.gcs.close()
    thread.join(5)
    assert not thread.is_alive()


def test_a_node_that_ends_and_a_worker_that_is_stopped_return(head: Head, ray: RayProcess, tmp_path: Path) -> None:
    stopped = worker_of(head, tmp_path)
    thread = stays(stopped, head, ray)
    stopped.stopping.set()
    thread.join(5)
    assert not thread.is_alive()
    thread = stays(worker_of(head, tmp_path), head, ray)
    ray.stop()
    thread.join(5)
    assert not thread.is_alive()
    head.http.stop()


def test_a_process_killed_for_its_memory_ends_the_worker(
    head: Head, ray: RayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter([3, 3, 3, 4])  # when it starts, and at every look
    monkeypatch.setattr(worker, "memory_kills", lambda: next(counted))
    one = worker_of(head, tmp_path)
    found = one.find_head()
    assert found is not None
    with pytest.raises(worker.OutOfMemoryError, match=r"more memory than its limit\. Raise") as ending:
        one.stay(ray, found)
    assert ending.value.exit_code == 137
    head.http.stop()


def test_what_a_killed_container_left_does_not_make_the_next_one_ready(head: Head, tmp_path: Path) -> None:
    """The file is in the pod's own /tmp, which outlives its containers."""
    (tmp_path / "joined").touch()
    one = worker_of(head, tmp_path, host="no-such-host.invalid")
    thread = threading.Thread(target=one.run)
    thread.start()
    deadline = time.monotonic() + 10
    while (tmp_path / "joined").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    one.stopping.set()
    thread.join(10)
    assert not (tmp_path / "joined").exists() and not thread.is_alive()
