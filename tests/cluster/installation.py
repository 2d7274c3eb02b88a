"""Reef on the test cluster: the chart installed by Helm's own library, and jobs on it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import helm_python
import yaml
from kube.api import ApiError
from kube.cluster import Cluster
from kube.progress import ClusterError, stage, wait_until

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "reef"
EXAMPLES = ROOT / "examples"
SYSTEM = "reef-system"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEADLINE_S = 240
CHILDREN = "pods,jobs,deployments,replicasets,services,configmaps,secrets,networkpolicies"  # of a job
Job = dict[str, Any]
READ_METRICS = """
import os, urllib.request
print(urllib.request.urlopen(f"http://{os.environ['POD_IP']}:8080/metrics").read().decode())
"""


class Installation:
    """A release of the chart.

    Args:
        cluster: where it is installed.
        namespace: of the operator; made if needed.
        name: of the release.
    """

    def __init__(self, cluster: Cluster, namespace: str = SYSTEM, name: str = "reef") -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def values(self, **values: Any) -> dict[str, Any]:
        """The chart's values with the images that this tree makes; `values` are merged over them."""
        operator, trainer = (self.cluster.image(target).rsplit(":", 1) for target in ("operator", "trainer"))
        images = {
            "image": {"repository": operator[0], "tag": operator[1], "pullPolicy": "Never"},
            "trainerImage": {"repository": trainer[0], "tag": trainer[1], "pullPolicy": "Never"},
            "operator": {"lingerSeconds": 3} | values.pop("operator", {}),
        }
        return images | values

    def helm(self) -> helm_python.Config:
        """Helm's actions in the operator's namespace; to be closed."""
        return helm_python.Config(kubeconfig_path=self.cluster.kubeconfig, namespace=self.namespace)

    def install(self, **values: Any) -> None:
        """Install the chart and wait until the operator is ready."""
        chosen = self.values(**values)
        with stage("Installing the chart"), self.helm() as helm:
            helm.install(CHART, self.name, chosen, namespace=self.namespace, create_namespace=True)
        self._define_rules(chosen)
        self.await_operator()

    def upgrade(self, **values: Any) -> None:
        """Upgrade the release and wait until the operator is ready."""
        chosen = self.values(**values)
        with self.helm() as helm:
            helm.upgrade(CHART, self.name, chosen, namespace=self.namespace)
        self._define_rules(chosen)
        self.await_operator()

    def _define_rules(self, values: dict[str, Any]) -> None:
        """Give the definition its CEL rules, if they are checked: Helm asks the API server, which may be older."""
        if self.cluster.checks_rules and values.get("crds", {}).get("install", True):
            self._define(self.cluster.crd_version)

    def _define(self, version: str) -> None:
        """Make the definition what the chart has for a version of Kubernetes, and wait until it is in effect."""
        with helm_python.Chart.load(CHART) as chart:
            texts = chart.render({"kubeVersion": version}, name=self.name, namespace=self.namespace)
        definition = yaml.safe_load(texts["reef/templates/crd/rltrainingjobs.yaml"])
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        fields = self.cluster.api.request("GET", path)["metadata"]["managedFields"]
        (helm,) = {each["manager"] for each in fields if each["operation"] == "Apply"}  # else it would find a conflict
        self.cluster.api.request("PATCH", f"{path}?fieldManager={helm}&force=true", definition, kind="apply")
        has_rules = "x-kubernetes-validations" in str(definition)
        wait_until("the definition to be in effect", lambda: self._refuses(BREAKS_A_RULE) == has_rules)

    @contextlib.contextmanager
    def without_rules(self) -> Iterator[None]:
        """The definition as servers before 1.25 get it, which refuses less: the operator has to, and tests see that."""
        if not self.cluster.checks_rules:
            yield
            return
        self._define("1.24.0")
        try:
            yield
        finally:
            self._define(self.cluster.crd_version)

    def _refuses(self, job: Job) -> bool:
        path = "/apis/reef.dev/v1/namespaces/default/rltrainingjobs?dryRun=All"
        try:
            self.cluster.api.request("POST", path, job)
        except ApiError as refused:
            if refused.status == 422:
                return True
            raise
        return False

    def uninstall(self) -> None:
        """Remove the release; the CustomResourceDefinition and the jobs stay."""
        with self.helm() as helm:
            helm.uninstall(self.name)

    def await_operator(self) -> None:
        """Wait until the operator's newest pod is ready."""

        def ready(deployment: dict[str, Any]) -> bool:
            status = deployment.get("status") or {}
            current = status.get("observedGeneration") == deployment["metadata"]["generation"]
            wanted = deployment["spec"]["replicas"]
            return bool(current and status.get("readyReplicas", 0) == wanted == status.get("updatedReplicas"))

        try:
            self.cluster.wait_for("deployment", self.deployment, ready, namespace=self.namespace, timeout_s=DEADLINE_S)
        except ClusterError as late:
            raise ClusterError(f"{late}\nthe operator's log:\n{self.log()[-4000:]}") from None

    @property
    def deployment(self) -> str:
        """Name of the operator's Deployment."""
        selector = "app.kubernetes.io/component=operator"
        found = self.cluster.get("deployment", namespace=self.namespace, selector=selector)["items"]
        return str(found[0]["metadata"]["name"])

    def pod(self) -> dict[str, Any]:
        """The operator's pod."""
        selector = "app.kubernetes.io/component=operator"
        pods = self.cluster.get("pods", namespace=self.namespace, selector=selector)["items"]
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def log(self) -> str:
        """What the operator has logged."""
        try:
            name = self.pod()["metadata"]["name"]
            return self.cluster.kubectl("logs", "-n", self.namespace, name, "--tail=200")
        except (ClusterError, ValueError) as error:
            return f"(none: {error})"

    def removals(self, job: str, namespace: str) -> list[tuple[str, datetime]]:
        """What the operator has removed of a job, by kind, and when: its own log says so."""
        log = self.cluster.kubectl("logs", "-n", self.namespace, self.pod()["metadata"]["name"])
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        own = [line for line in lines if (line.get("namespace"), line.get("job")) == (namespace, job)]
        told = [(line["message"].split(), datetime.fromisoformat(line["time"])) for line in own]
        return [(words[1], moment) for words, moment in told if words[0] == "delete"]

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def status(self, name: str, namespace: str) -> dict[str, Any]:
        """The status of a job; empty before the operator has seen it."""
        return self.cluster.get("rltrainingjob", name, namespace=namespace).get("status") or {}

    def wait(
        self,
        name: str,
        holds: Callable[[dict[str, Any]], bool],
        *,
        namespace: str,
        timeout_s: float = DEADLINE_S,
    ) -> dict[str, Any]:
        """Wait until something holds for a job's status, and return it; a job that failed is not waited for."""
        try:
            found = self.cluster.wait_for(
                "rltrainingjob",
                name,
                lambda job: holds(job.get("status") or {}),
                namespace=namespace,
                timeout_s=timeout_s,
            )
        except ClusterError as late:
            raise ClusterError(f"{late}\n{self.evidence(name, namespace)}") from None
        return dict(found.get("status") or {})

    def wait_for_phase(self, name: str, *phases: str, namespace: str, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait until a job is in one of the phases."""
        return self.wait(name, lambda status: status.get("phase") in phases, namespace=namespace, timeout_s=timeout_s)

    def pods(self, name: str, namespace: str, component: str = "") -> list[dict[str, Any]]:
        """The pods of a job that are not being deleted, oldest first; `component` head or worker."""
        selector = f"reef.dev/job={name}" + (f",reef.dev/component={component}" if component else "")
        found = self.cluster.get("pods", namespace=namespace, selector=selector)["items"]
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(alive, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def rollout_workers(self, head: dict[str, Any]) -> tuple[int, int]:
        """Rollout workers at work, and those that are missing although they have room: what Prometheus would read."""
        name, namespace = head["metadata"]["name"], head["metadata"]["namespace"]
        answer = self.cluster.kubectl("exec", "-n", namespace, name, "--", "python", "-c", READ_METRICS)
        numbers = dict(line.split() for line in answer.splitlines() if line.startswith("reef_training_workers_"))
        return int(float(numbers["reef_training_workers_healthy"])), int(float(numbers["reef_training_workers_lost"]))

    def resumed(self, name: str, namespace: str) -> int:
        """The iteration after which the newest head of a job goes on, in the words of its log."""
        log = self.cluster.kubectl("logs", "-n", namespace, self.pods(name, namespace, "head")[-1]["metadata"]["name"])
        found = re.search(r"continuing after iteration (\d+)", log)
        assert found, log
        return int(found[1])

    def events(self, name: str, namespace: str) -> list[tuple[str, str]]:
        """(reason, message) of a job's Events."""
        selector = f"involvedObject.name={name},involvedObject.kind=RLTrainingJob"
        found = json.loads(
            self.cluster.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json")
        )
        return [(event["reason"], event["message"]) for event in found["items"]]

    def evidence(self, name: str, namespace: str) -> str:
        """What is known of a job: for the message of a wait that failed."""
        selector = f"reef.dev/job={name}"
        parts = [self.cluster.kubectl("get", "pods,jobs,deployments", "-n", namespace, "-l", selector, "-o", "wide")]
        for pod in self.pods(name, namespace):
            each = pod["metadata"]["name"]
            try:
                parts.append(f"--- log of {each}\n{self.cluster.kubectl('logs', '-n', namespace, each, '--tail=40')}")
            except ClusterError as error:
                parts.append(f"--- no log of {each}: {error}")
        return "\n".join([*parts, f"--- log of the operator\n{self.log()[-5000:]}"])


def processes_of(pod: dict[str, Any]) -> dict[int, str]:
    """Command lines of the processes in a pod's first container, by their numbers on this machine."""
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if container in (folder / "cgroup").read_text():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


def process_of(pod: dict[str, Any]) -> int:
    """The number, on this machine, of the operator's process in a pod."""
    for number, command in processes_of(pod).items():
        if "reef-operator" in command:
            return number
    raise LookupError(f"no process of {pod['metadata']['name']}")


def kill(pod: dict[str, Any]) -> None:
    """SIGKILL for all processes of a pod's first container, which have no time for a word."""
    for number in processes_of(pod):
        with contextlib.suppress(ProcessLookupError):  # it went with the first process of its container
            os.kill(number, signal.SIGKILL)


def example(name: str, **changes: Any) -> Job:
    """A document of examples/, with the spec's fields in `changes` replaced."""
    job: Job = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    job["metadata"].pop("namespace", None)
    job["spec"] |= changes
    return job


def small_job(name: str, *, iterations: int = 5, **spec: Any) -> Job:
    """A job on CartPole of little iterations; `spec` is merged over its fields, dictionaries one level deep."""
    fields: dict[str, Any] = {
        "algorithm": "PPO",
        "environment": {"name": "CartPole-v1"},
        "config": {
            "num_envs_per_worker": 2,
            "train_batch_size": 64,
            "sgd_minibatch_size": 32,
            "num_sgd_iter": 1,
            "model": {"fcnet_hiddens": [16]},
            "seed": 1,
        },
        "stop": {"training_iteration": iterations},
        "checkpoint": {"frequency": 5, "keep": 3},
        "head": {"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}}},
    }
    for key, value in spec.items():
        fields[key] = fields[key] | value if isinstance(value, dict) and isinstance(fields.get(key), dict) else value
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": name}, "spec": fields}


def pool(name: str = "cpu", replicas: int = 1, **fields: Any) -> dict[str, Any]:
    """A node pool that asks for little."""
    return {
        "name": name,
        "replicas": replicas,
        "resources": {"requests": {"cpu": "50m", "memory": "300Mi"}},
        **fields,
    }


BREAKS_A_RULE = small_job("rules", workers=[pool("head")])
