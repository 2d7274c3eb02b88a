"""The definition on a server that checks CEL: what it takes, what it refuses and in which words, and its subresources.

Served under a group of its own, where no operator looks: documents are stored, and nothing is made of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube.api import Api, ApiError
from kube.cluster import Cluster
from kube.progress import wait_until

ROOT = Path(__file__).parents[2]
CRD = (ROOT / "crds" / "rltrainingjobs.reef.dev.yaml").read_text()
GROUP = "checked.reef.dev"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FILES = [*sorted((ROOT / "examples").rglob("*.yaml")), *sorted((ROOT / "benchmarks" / "learn").glob("*.yaml"))]
DOCUMENTS = [path for path in FILES if "kind: RLTrainingJob" in path.read_text()]
UNCHANGEABLE = "cannot be changed"
Object = dict[str, Any]


class Checked:
    """The definition under the tests' group, in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.path = f"/apis/{GROUP}/v1/namespaces/{namespace}/rltrainingjobs"

    def create(self, document: Object, *, stored: bool = False) -> Object:
        """Post a document as kubectl does, with unknown fields refused."""
        query = "?fieldValidation=Strict" + ("" if stored else "&dryRun=All")
        made: Object = self.api.request("POST", self.path + query, document)
        return made

    def refusal(self, document: Object) -> str:
        """What the server says to it."""
        return said(lambda: self.create(document))

    def change(self, name: str, change: Object, kind: str = "merge") -> Object:
        """Patch a stored document."""
        changed: Object = self.api.request("PATCH", f"{self.path}/{name}", change, kind=kind)
        return changed


def said(request: Any) -> str:
    """The message with which a request is refused; empty if it is not."""
    try:
        request()
    except ApiError as refused:
        assert refused.status in (400, 422), refused
        return str(refused).replace('\\"', '"')  # as it is in the answer's JSON
    return ""


@pytest.fixture(scope="module")
def checked(cluster: Cluster) -> Iterator[Checked]:
    """The definition of crds/, taken by the server with strict validation, and served."""
    if not cluster.checks_rules:
        pytest.skip(f"custom resources are served by Kubernetes {cluster.crd_version}, which checks no CEL rules")
    definition = yaml.safe_load(CRD.replace("reef.dev", GROUP))
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    with cluster.namespace("checked") as namespace:
        cluster.api.request("POST", f"{DEFINITIONS}?fieldValidation=Strict", definition)
        try:
            checked = Checked(cluster.api, namespace)
            wait_until("the definition to be served", lambda: "items" in cluster.api.request("GET", checked.path))
            conditions = {each["type"]: each for each in cluster.api.request("GET", path)["status"]["conditions"]}
            assert conditions["Established"]["status"] == "True"
            assert "NonStructuralSchema" not in conditions
            yield checked
        finally:
            cluster.api.request("DELETE", path)


def job(name: str = "job", **spec: Any) -> Object:
    """A right document with these fields of the spec; None leaves a field out."""
    fields = {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": {"training_iteration": 1}} | spec
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RLTrainingJob",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda path: path.stem)
def test_every_document_of_ours_is_taken(checked: Checked, file: Path) -> None:
    document = yaml.safe_load(file.read_text().replace("reef.dev/v1", f"{GROUP}/v1"))
    document["metadata"].pop("namespace", None)
    assert checked.create(document)["spec"] == document["spec"], "nothing is added and nothing is dropped"


PARAMETER = "spec.tune.parameters.lr"
ONE_STORE = "give exactly one of persistentVolumeClaim and uri"
CLAIM = {"claimName": "results"}
STORED = {"checkpoint": {"storage": {"uri": "s3://a/b"}}}
APPLICATIONS = [{"podSelector": {"matchLabels": {"app": "game"}}}]
EXTERNAL: Object = {"externalInput": {"tokenSecretRef": {"name": "game"}, "from": APPLICATIONS}}
WITH_OTHERS: Object = {"externalInput": {"tokenSecretRef": {"name": "game"}, "from": [{"namespaceSelector": {}}]}}
MANY = {f"k{number}": 0 for number in range(1001)}
GOOD: dict[str, Object] = {
    "plain": job(),
    "longest-name": job("j" * 52),
    "longest-names": job("j" * 50, workers=[{"name": "p" * 6}]),
    "claim": job(checkpoint={"storage": {"persistentVolumeClaim": CLAIM}}),
    "uri": job(checkpoint={"storage": {"uri": "s3://a/b", "secretRef": {"name": "s"}}}),
    "ingress": job(externalInput={"tokenSecretRef": {"name": "game"}, "ingress": {"host": "game.example.com"}}),
    "minimum": job(workers=[{"name": "a", "replicas": 2, "minReplicas": 2}]),
    "minimum-of-one": job(workers=[{"name": "a", "minReplicas": 1}]),
    "kinds": job(tune={"parameters": {"lr": {"grid": [1, "a", {"b": None}]}, "gamma": {"uniform": [0.9, 1]}}}),
    "keys": job(config={key: 0 for key in list(MANY)[:1000]}, environment={"name": "E", "config": {"deep": MANY}}),
    "quantities": job(head={"resources": {"requests": {"cpu": 2, "memory": "4Gi"}}}),
    "external": job(**EXTERNAL),
    "external-of-all": job(**WITH_OTHERS),
    "misspelt-setting": job(config={"trian_batch_size": 1, "model": {"fcnet_hidens": [8]}}),
    "pip": job(runtimeEnv={"pip": ["x"]}),
}
WRONG: dict[str, tuple[Object, list[str]]] = {
    "name": (job("j" * 53), ["metadata.name is too long", "shorten it to 52 characters"]),
    "names": (job("j" * 50, workers=[{"name": "p" * 7}]), ["a pool's name are too long", "to 56 characters together"]),
    "no-store": (job(checkpoint={"storage": {}}), ["spec.checkpoint.storage", ONE_STORE]),
    "stores": (
        job(checkpoint={"storage": {"persistentVolumeClaim": CLAIM, "uri": "s3://a/b"}}),
        ["spec.checkpoint.storage", ONE_STORE],
    ),
    "secret": (
        job(checkpoint={"storage": {"persistentVolumeClaim": CLAIM, "secretRef": {"name": "s"}}}),
        ["spec.checkpoint.storage", "secretRef belongs to uri", "remove it"],
    ),
    "minimum": (
        job(workers=[{"name": "a", "minReplicas": 2}]),
        ["spec.workers[0]", "minReplicas is larger than replicas (1 when not given)"],
    ),
    "pool-head": (job(workers=[{"name": "head"}]), ["spec.workers[0]", "'head' belongs to the head pod"]),
    "no-kind": (job(tune={"parameters": {"lr": {}}}), [PARAMETER, "at least 1"]),
    "kinds": (job(tune={"parameters": {"lr": {"grid": [1], "choice": [1]}}}), [PARAMETER, "at most 1"]),
    "config-keys": (job(config=MANY), ["spec.config", "at most 1000"]),
    "setting-keys": (job(config={"evaluation_config": MANY}), ["spec.config.evaluation_config", "at most 1000"]),
    "any-setting-keys": (job(config={"lr": MANY}), ["spec.config.lr", "at most 1000"]),
    "environment-keys": (job(environment={"name": "E", "config": MANY}), ["spec.environment.config", "at most 1000"]),
    "template-keys": (job(head={"template": MANY}), ["spec.head.template", "at most 1000"]),
    "no-token": (job(externalInput={"from": APPLICATIONS}), ["spec.externalInput.tokenSecretRef", "Required value"]),
    "from-nobody": (
        job(externalInput={"tokenSecretRef": {"name": "game"}, "from": []}),
        ["spec.externalInput.from", "at least 1"],
    ),
    "from-anybody": (
        job(externalInput={"tokenSecretRef": {"name": "game"}, "from": [{}]}),
        ["spec.externalInput.from[0]", "at least 1"],
    ),
    "nobody": (
        job(externalInput={"tokenSecretRef": {"name": "game"}}),
        ["spec.externalInput", "add from, the pods that may, or ingress"],
    ),
    "no-host": (
        job(externalInput={"tokenSecretRef": {"name": "game"}, "ingress": {}}),
        ["spec.externalInput.ingress.host", "Required value"],
    ),
    "unknown": (job(suspnd=True), ['unknown field "spec.suspnd"']),
    "unknown-in-pool": (job(workers=[{"name": "a", "replica": 2}]), ['unknown field "spec.workers[0].replica"']),
    "unknown-kind": (job(tune={"parameters": {"lr": {"values": [1]}}}), [f'unknown field "{PARAMETER}.values"']),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_right_document_is_taken(checked: Checked, name: str) -> None:
    assert checked.create(GOOD[name])["spec"] == GOOD[name]["spec"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_document_is_refused_with_what_to_do(checked: Checked, name: str) -> None:
    document, parts = WRONG[name]
    message = checked.refusal(document)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({}, {}, ""),
        ({}, {"suspend": True, "replicas": 3, "stop": {"training_iteration": 9}}, ""),
        ({}, {"algorithm": "DQN"}, "spec.algorithm"),
        ({}, {"environment": {"name": "F"}}, "spec.environment.name"),
        ({}, {"environment": {"name": "CartPole-v1", "config": {"a": 1}}}, ""),
        ({}, {"restoreFrom": "x"}, "spec.restoreFrom"),
        ({"restoreFrom": "x"}, {}, "spec.restoreFrom"),
        ({"restoreFrom": "x"}, {"restoreFrom": "x"}, ""),
        ({}, {"checkpoint": {"frequency": 2}}, ""),
        ({"checkpoint": {"frequency": 2}}, {}, ""),
        (STORED, STORED, ""),
        ({}, STORED, "spec.checkpoint.storage"),
        (STORED, {}, "spec.checkpoint.storage"),
        (STORED, {"checkpoint": {"frequency": 2}}, "spec.checkpoint.storage"),
        (STORED, {"checkpoint": {"storage": {"uri": "s3://a/c"}}}, "spec.checkpoint.storage"),
        (EXTERNAL, EXTERNAL, ""),
        ({}, EXTERNAL, "spec.externalInput"),
        (EXTERNAL, {}, "spec.externalInput"),
        (EXTERNAL, WITH_OTHERS, "spec.externalInput"),
    ],
)
def test_some_fields_stay_as_they_were_created(checked: Checked, before: Object, after: Object, field: str) -> None:
    name = "settled"
    stored = checked.create(job(name, **before), stored=True)
    try:
        document = job(name, **after)
        document["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        message = said(lambda: checked.api.request("PUT", f"{checked.path}/{name}", document))
        assert (f"{field} {UNCHANGEABLE}" in message) if field else not message, message
    finally:
        checked.api.request("DELETE", f"{checked.path}/{name}")


@pytest.fixture
def stored(checked: Checked) -> Iterator[str]:
    """Name of a stored document with two pools."""
    name = "pools"
    checked.create(job(name, workers=[{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]), stored=True)
    yield name
    checked.api.request("DELETE", f"{checked.path}/{name}")


def test_pools_are_applied_one_by_one(checked: Checked, stored: str) -> None:
    """A server-side apply of one pool leaves the others, and a second person is told of the first."""

    def applied(by: str, replicas: int) -> Object:
        document = job(stored, workers=[{"name": "b", "replicas": replicas}])
        query = f"?fieldManager={by}&fieldValidation=Strict&force={str(by == 'first').lower()}"
        made: Object = checked.api.request("PATCH", f"{checked.path}/{stored}{query}", document, kind="apply")
        return made

    pools = applied("first", 5)["spec"]["workers"]
    assert pools == [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 5}]
    with pytest.raises(ApiError, match=r'conflict with \\"first\\".*workers\[name=') as refused:
        applied("second", 6)
    assert refused.value.status == 409


def test_status_and_spec_are_written_apart(checked: Checked, stored: str) -> None:
    document = checked.api.request("GET", f"{checked.path}/{stored}")
    changed = copy.deepcopy(document) | {"status": {"phase": "Running", "attempts": 1}}
    changed["spec"]["suspend"] = True
    after = checked.api.request("PUT", f"{checked.path}/{stored}/status", changed)
    assert after["status"] == {"phase": "Running", "attempts": 1}
    assert (after["spec"], after["metadata"]["generation"]) == (document["spec"], 1)
    again = checked.change(stored, {"spec": {"suspend": True}, "status": {"phase": "Failed"}})
    assert (again["spec"]["suspend"], again["metadata"]["generation"]) == (True, 2)
    assert again["status"]["phase"] == "Running"
    wrong = {"status": {"phase": "Sleeping"}}
    message = said(lambda: checked.api.request("PATCH", f"{checked.path}/{stored}/status", wrong, kind="merge"))
    assert "status.phase" in message and '"Sleeping"' in message


def test_a_job_is_scaled(checked: Checked, stored: str) -> None:
    """What `kubectl scale` and autoscalers read and write.

    The API server reads one field. A default there would overrule the replicas of the first pool, so until somebody
    sets it there is nothing to read. Once a server answers something else, docs/kubernetes.md has to be changed.
    """
    scale = f"{checked.path}/{stored}/scale"
    with pytest.raises(ApiError, match=r'field \\".spec.replicas\\" does not exist') as refused:
        checked.api.request("GET", scale)
    assert refused.value.status == 500
    workers = {"scaled": 1, "selector": "reef.dev/job=pools"}
    checked.api.request("PATCH", f"{checked.path}/{stored}/status", {"status": {"workers": workers}}, kind="merge")
    checked.api.request("PATCH", scale, {"spec": {"replicas": 3}}, kind="merge")
    found = checked.api.request("GET", scale)
    assert (found["spec"], found["status"]) == ({"replicas": 3}, {"replicas": 1, "selector": "reef.dev/job=pools"})
    assert checked.api.request("GET", f"{checked.path}/{stored}")["spec"]["replicas"] == 3
