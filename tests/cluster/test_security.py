"""What a training pod may do: nothing with the API server, nothing in another job, and little on its node."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from installation import Installation, pool, small_job
from kube.cluster import Cluster

pytestmark = pytest.mark.timeout(600)
LONG = {"stop": {"training_iteration": 100_000}}
Pod = dict[str, Any]


@pytest.fixture(scope="module")
def two_jobs(reef: Installation, cluster: Cluster) -> Iterator[str]:
    """A namespace with a job of head and worker, and another one of a head alone."""
    with cluster.namespace("guarded") as name:
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")  # from 1.22 on
        cluster.apply([small_job("one", workers=[pool()], **LONG), small_job("other", **LONG)], namespace=name)
        for job in ("one", "other"):
            reef.wait_for_phase(job, "Running", namespace=name)
        yield name


def test_pods_are_as_the_restricted_standard_wants_them(reef: Installation, two_jobs: str) -> None:
    """Field by field, as servers before 1.22 do not check it themselves; the operator's own pod too."""
    pods = [*reef.pods("one", two_jobs), reef.pod()]
    assert len(pods) == 3
    for pod in pods:
        assert list(violations(pod["spec"])) == []


def test_the_check_of_the_standard_finds_what_it_forbids() -> None:
    container = {"name": "c", "securityContext": {"privileged": True}, "ports": [{"hostPort": 80}]}
    bad = {"containers": [container], "hostPID": True, "volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
    found = " ".join(violations(bad))
    for word in ("hostPID", "root", "privileged", "hostPort", "Escalation", "drop", "NonRoot", "seccomp"):
        assert word in found


def violations(spec: Pod) -> Iterator[str]:
    """What in a pod the Pod Security Standard "restricted" forbids."""
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    yield from (f"volume {each['name']}" for each in spec.get("volumes", []) if not each.keys() - {"name"} <= kinds)
    whole = spec.get("securityContext", {})
    yield from (f"sysctl {each['name']}" for each in whole.get("sysctls", []))
    for container in spec["containers"] + spec.get("initContainers", []):
        own = container.get("securityContext", {})
        capabilities = own.get("capabilities", {})
        effective = whole | own
        wanted = {
            "privileged": not own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities drop": capabilities.get("drop") == ["ALL"],
            "capabilities add": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
            "runAsNonRoot": effective.get("runAsNonRoot") is True,
            "runAsUser": effective.get("runAsUser") != 0,
            "seccompProfile": effective.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "procMount": own.get("procMount", "Default") == "Default",
            "seLinuxOptions": not effective.get("seLinuxOptions"),
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        yield from (f"{container['name']}: {field}" for field, right in wanted.items() if not right)


LOOK = """
import json, os, pathlib
def writable(folder):
    try:
        path = pathlib.Path(folder, "written")
        path.touch()
        path.unlink()
    except OSError as error:
        return error.strerror
    return True
lines = pathlib.Path("/proc/1/status").read_text().splitlines()
print(json.dumps({
    "process": dict(line.split(":\\t", 1) for line in lines if ":\\t" in line),
    "account": os.path.exists("/var/run/secrets/kubernetes.io"),
    "folders": {folder: writable(folder) for folder in ("/", "/opt/reef", "/etc/reef", "/tmp", "/dev/shm")},
    "services": [name for name in os.environ if name.endswith("_SERVICE_HOST") and name != "KUBERNETES_SERVICE_HOST"],
}))
"""


@pytest.mark.parametrize("component", ["head", "worker"])
def test_what_a_pod_sees_from_inside(reef: Installation, cluster: Cluster, two_jobs: str, component: str) -> None:
    """No token of the API server, user 1000, no capability, seccomp at work, a root file system that is read-only."""
    seen = json.loads(inside(reef, cluster, two_jobs, component, LOOK))
    process, folders = seen["process"], seen["folders"]
    assert process["Uid"].split() == process["Gid"].split() == ["1000"] * 4
    assert {int(process[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")
    assert not seen["account"]
    assert seen["services"] == []
    assert folders["/tmp"] is folders["/dev/shm"] is True
    assert {folders[name] for name in ("/", "/opt/reef", "/etc/reef")} == {"Read-only file system"}


TOOLS = """
import json, os, shutil, sys
folders = ("/var/lib/apt/lists", "/var/cache/apt/archives", "/root/.cache", "/opt/reef/.cache")
caches = [os.path.join(at, name) for folder in folders for at, _, names in os.walk(folder) for name in names]
tools = [shutil.which(name) for name in ("cc", "gcc", "g++", "c++", "ld", "make", *sys.argv[1:])]
caches = [path for path in caches if not path.endswith("/lock")]
print(json.dumps({"caches": caches, "tools": [path for path in tools if path]}))
"""


def test_images_hold_neither_compilers_nor_caches(reef: Installation, cluster: Cluster, two_jobs: str) -> None:
    """Pip is in the trainer's alone: images of people's own are made from it."""
    for pod, unwanted in ((reef.pods("one", two_jobs, "head")[0], []), (reef.pod(), ["pip", "pip3"])):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        found = json.loads(cluster.kubectl("exec", "-n", namespace, name, "--", "python", "-c", TOOLS, *unwanted))
        assert found == {"caches": [], "tools": []}, name


JOIN = """
import os, sys
mode, token, address = sys.argv[1:]
os.environ.pop("RAY_AUTH_TOKEN", None)
os.environ["RAY_AUTH_MODE"] = mode
if token:
    os.environ["RAY_AUTH_TOKEN"] = token
from ray._raylet import GcsClient
try:
    print("nodes:", len(GcsClient(address=address).get_all_node_info(timeout=10)))
except Exception as error:
    print("refused:", type(error).__name__, error)
"""


def test_another_jobs_head_takes_nobody_without_its_token(reef: Installation, cluster: Cluster, two_jobs: str) -> None:
    """Its port is open here, as this network knows no policies: the token alone decides."""
    (other,) = reef.pods("other", two_jobs, "head")
    secrets = {job: token(cluster, two_jobs, job) for job in ("one", "other")}
    assert secrets["one"] != secrets["other"]

    def join(mode: str, secret: str) -> str:
        address = f"{other['status']['podIP']}:6379"
        return inside(reef, cluster, two_jobs, "worker", JOIN, mode, secret, address)

    assert "nodes: 1" in join("token", secrets["other"]), "with the right one it would do"
    for mode, secret in (("token", secrets["one"]), ("token", "0" * 64), ("disabled", "")):
        said = join(mode, secret)
        assert "refused:" in said
        assert "nodes:" not in said
        assert "uthenticat" in said or "AuthToken" in said, said
    logs = [cluster.kubectl("logs", "-n", two_jobs, pod["metadata"]["name"]) for pod in reef.pods("one", two_jobs)]
    assert not any(secret in text for text in [*logs, reef.log()] for secret in secrets.values()), (
        "tokens are not logged"
    )


def token(cluster: Cluster, namespace: str, job: str) -> str:
    """The Ray token in the job's Secret."""
    return base64.b64decode(cluster.get("secret", f"{job}-ray-token", namespace=namespace)["data"]["token"]).decode()


def inside(reef: Installation, cluster: Cluster, namespace: str, component: str, code: str, *arguments: str) -> str:
    """What Python prints in a pod of the first job."""
    (pod,) = reef.pods("one", namespace, component)
    name = pod["metadata"]["name"]
    return cluster.kubectl("exec", "-n", namespace, name, "--", "python", "-c", code, *arguments)
