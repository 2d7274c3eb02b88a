"""The command lines of Ray's nodes, and processes that end with everything they started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reef import container
from reef.errors import ConfigError
from reef.job.cluster import STORE_LEAST, Node, RayProcess, object_store_bytes

POD = {
    "POD_IP": "127.0.0.9",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "s3cret",
    "REEF_CPUS": "1.5",
    "REEF_GPUS": "2",
}
TREE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("Ray runtime started.", child.pid, flush=True)
time.sleep(600)
"""


def test_command_lines_hold_the_pod_and_not_its_secret() -> None:
    node = Node.of(POD | {"REEF_OBJECT_STORE_BYTES": "100000000"})
    head = node.head_command(6379, takes_workers=False)
    worker = node.worker_command("10.0.0.1:6379", "gpu-a", takes_workers=True)
    for command in (head, worker):
        assert {"--node-ip-address=127.0.0.9", "--num-cpus=2", "--num-gpus=2", "--block"} <= set(command)
        assert "--object-store-memory=100000000" in command
        assert "s3cret" not in " ".join(command)
    assert {"--head", "--port=6379", "--include-dashboard=false", '--resources={"pool:head": 1}'} <= set(head)
    label = "--labels=reef.dev/workers=of-pool"
    assert {"--address=10.0.0.1:6379", '--resources={"pool:gpu-a": 1}', label} <= set(worker)
    for_learners = node.worker_command("10.0.0.1:6379", "gpu-a", takes_workers=False)
    assert not [part for part in (*head, *for_learners) if part.startswith("--labels")]
    assert "--labels=reef.dev/workers=of-head" in node.head_command(6379, takes_workers=True)
    (checks,) = [part for part in head if part.startswith("--system-config=")]
    assert json.loads(checks.partition("=")[2])["health_check_period_ms"] == 1000


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE='disabled': expected 'token'"),
        ({"RAY_AUTH_TOKEN": ""}, "RAY_AUTH_TOKEN: is not set"),
        ({"POD_IP": ""}, "POD_IP: is not set"),
        ({"REEF_CPUS": "2 or 3"}, "REEF_CPUS='2 or 3': expected a number"),
        ({"REEF_GPUS": "-1"}, "REEF_GPUS='-1': expected a number of 0 or more"),
    ],
)
def test_an_incomplete_pod_is_refused(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Node.of(POD | changes)


def test_the_object_store_fits_into_shared_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    usage = type("Usage", (), {"free": 1 << 30})
    monkeypatch.setattr("reef.job.cluster.shutil.disk_usage", lambda path: usage)
    assert object_store_bytes() == min(int(0.8 * (1 << 30)), int(0.3 * container.memory_bytes()))
    assert caplog.text == ""
    usage.free = 64 << 20
    assert object_store_bytes() == STORE_LEAST
    assert "room for 51 MiB of objects and Ray needs 80" in caplog.text


def test_a_process_ends_with_its_children() -> None:
    process = RayProcess([sys.executable, "-c", TREE])
    assert process.changed.wait(20)
    assert process.ready
    child = int(process.last_lines.split()[-1])
    assert os.getpgid(child) == process.pid
    process.stop()
    assert process.exit_code is not None
    deadline = time.monotonic() + 10
    while running(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_process_that_ends_by_itself_is_noticed_with_its_words(capfd: pytest.CaptureFixture[str]) -> None:
    process = RayProcess([sys.executable, "-c", "print('InvalidAuthToken: no'); raise SystemExit(3)"])
    assert process.changed.wait(20)
    deadline = time.monotonic() + 10
    while process.exit_code is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.stop()
    assert (process.ready, process.refused, process.exit_code) == (False, True, 3)
    assert process.last_lines == "InvalidAuthToken: no"
    assert "ray: InvalidAuthToken: no" in capfd.readouterr().err


def test_only_the_processes_of_others_are_collected() -> None:
    """In a process of its own, which stands for the first of a container."""
    program = """
import os, subprocess, sys, time
from reef.job.cluster import reap_orphans
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
orphan = os.fork()
if orphan == 0:
    os._exit(0)
time.sleep(0.2)
reap_orphans(own.pid)
assert not os.path.exists(f"/proc/{orphan}"), "it is still there"
own.kill()
time.sleep(0.2)
reap_orphans(own.pid)
assert own.wait() == -9
reap_orphans()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
