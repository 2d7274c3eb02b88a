"""Starting and joining Ray."""

import subprocess
import sys

import pytest
import ray

from reef.distributed.start import start
from reef.errors import EXIT_FAILED, EXIT_WRONG_USE, ConfigError, ResourceError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]
PROGRAM = """
import os, ray, time
from reef.distributed.start import start

with start(num_cpus=3, num_gpus=0, resources={"pool": 2}, object_store_memory=100 * 1024 * 1024) as session:
    assert session.embedded
    assert {name: ray.cluster_resources()[name] for name in ("CPU", "pool")} == {"CPU": 3.0, "pool": 2.0}
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}, ray.nodes()
    with start() as second:
        assert not second.embedded
    assert ray.is_initialized(), "the inner session has stopped what it did not start"
    devices = ray.remote(num_cpus=0)(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
    assert ray.get(devices.remote(), timeout=60) == ""
    dies = ray.remote(num_cpus=0, max_retries=0)(lambda: os.kill(os.getpid(), 9))
    try:
        ray.get(dies.remote(), timeout=60)
    except ray.exceptions.WorkerCrashedError:
        time.sleep(1.5)  # Ray's own words about it come late
assert not ray.is_initialized()
try:
    start("127.0.0.1:1")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_local_ray_has_the_size_asked_for_is_quiet_and_ends_with_its_session():
    """In a process of its own: Ray can run only once in one."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ClusterUnavailableError no Ray cluster answers at '127.0.0.1:1'"), done.stdout
    assert done.stdout.count("\n") == 1, done.stdout
    assert done.stderr == ""


NODES = """
import ray
from reef.distributed import start as module
from reef.distributed.start import start
from reef.errors import ResourceError

with start(num_cpus=1, num_gpus=0, num_nodes=2, object_store_memory=100 * 1024 * 1024) as session:
    assert session.embedded
    assert [node["Resources"]["CPU"] for node in ray.nodes() if node["Alive"]] == [1.0, 1.0], ray.nodes()
    pid = ray.remote(num_cpus=1)(lambda: ray.get_runtime_context().get_node_id())
    assert ray.get(pid.remote(), timeout=60)
assert not ray.is_initialized()
module.NODES_S = 0.0
try:
    start(num_cpus=1, num_gpus=0, num_nodes=2, object_store_memory=100 * 1024 * 1024)
except ResourceError as error:
    assert "--ray-num-nodes 2: Ray's nodes on this machine were not up after 0 s" in str(error), error
else:
    raise AssertionError("nodes that are not up were not told")
"""


def test_several_nodes_of_one_machine_are_a_cluster_of_the_session():
    done = subprocess.run([sys.executable, "-c", NODES], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (ConnectionError("Ray's head is not up yet"), EXIT_FAILED),
        (RuntimeError("Failed to connect to GCS"), EXIT_FAILED),
        (RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9"), EXIT_WRONG_USE),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_tried_again_unless_it_is_another_rays(fault, code, monkeypatch):
    def fail(**_):
        raise fault

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(ResourceError, match="no Ray cluster answers at 'auto'") as caught:
        start("auto")
    assert caught.value.exit_code == code


def test_a_dashboard_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr("reef.distributed.start.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--ray-ui: Ray's dashboard is not installed"):
        start(dashboard=True)


DASHBOARD = """
import json, os, pathlib, urllib.request
from reef.distributed.start import start

import logging
said = []
logging.getLogger("reef").addHandler(handler := logging.Handler())
handler.emit = lambda record: said.append(record.getMessage())
with start(num_cpus=1, num_gpus=0, object_store_memory=100 * 1024 * 1024, dashboard=True):
    (text,) = [each for each in said if "dashboard" in each]
    url = text.split()[2]
    assert f"ray list objects --address {url}" in text, text
    request = urllib.request.Request(f"{url}/api/version")
    if os.environ.get("RAY_AUTH_MODE") == "token":
        assert "ray get-auth-token" in text, text
        token = (pathlib.Path.home() / ".ray" / "auth_token").read_text().strip()
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert "ray_version" in json.load(answer)
    assert b"Ray Dashboard" in urllib.request.urlopen(url, timeout=30).read()
"""


def test_the_dashboard_of_a_local_ray_answers():
    pytest.importorskip("aiohttp_cors", reason="needs ray[default]")
    done = subprocess.run([sys.executable, "-c", DASHBOARD], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr


def test_a_running_ray_is_used_as_it_is(ray_cluster):
    with start(num_cpus=64) as session:
        assert not session.embedded
    assert ray.is_initialized()
    assert ray.cluster_resources()["CPU"] == 4.0


def test_a_running_cluster_takes_no_size(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match="whose size \\['object_store_memory'\\] cannot set"):
        start("127.0.0.1:1", object_store_memory=1)
