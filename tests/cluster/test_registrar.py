"""What the registrar makes of definitions, on an API server that is a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml
from kube.api import Api, ApiError
from kube.registrar import DESCRIBED, SERVICES, Registrar

CRD: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "crds" / "rltrainingjobs.reef.dev.yaml").read_text())
NAME = CRD["metadata"]["name"]
ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


class Stored:
    """Objects by their paths, in the order in which they were made."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.slow_requests = 0  # are answered by the API server itself after an APIService is made

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "") -> Any:
        path, _, selector = path.partition("?")
        if (method, path) == ("GET", "/apis/reef.dev/v1"):
            assert f"{SERVICES}/v1.reef.dev" in self.objects
            if self.slow_requests:
                self.slow_requests -= 1
                assert not any(path.startswith(DESCRIBED) for path in self.objects), "it would be the answer"
                raise ApiError(404, "NotFound")
            return {"resources": [{"name": "rltrainingjobs/status"}, {"name": "rltrainingjobs"}]}
        if method == "GET":
            assert selector == "labelSelector=reef-registrar"
            return {"items": [found for place, found in self.objects.items() if place.startswith(path)]}
        if method == "POST":
            self.objects[f"{path}/{body['metadata']['name']}"] = body
        elif path.removesuffix("/status") not in self.objects:
            raise ApiError(404, "NotFound")
        elif method == "DELETE":
            self.objects[path]["metadata"]["finalizers"] = ["cleanup"]
        else:
            assert (method, kind) == ("PATCH", "merge")
            self._merge(path.removesuffix("/status"), body)
        return None

    def _merge(self, path: str, body: dict[str, Any]) -> None:
        metadata = self.objects[path]["metadata"] | body.get("metadata", {})
        self.objects[path] |= body | {"metadata": metadata}
        if metadata.get("finalizers", ()) is None:
            del self.objects[path]


def definition(generation: int = 1, **status: Any) -> dict[str, Any]:
    metadata = {"name": NAME, "uid": "u", "generation": generation}
    return {"metadata": metadata, "spec": CRD["spec"], "status": ESTABLISHED | status}


def test_a_definition_is_registered_when_it_is_established_until_it_goes():
    stored = Stored()
    registrar = Registrar(cast("Api", stored), cast("Api", stored), b"authority")
    registrar.register([definition(conditions=[])])
    assert stored.objects == {}
    registrar.register([definition()])
    registrar.register([definition()])
    service, description = f"{SERVICES}/v1.reef.dev", f"{DESCRIBED}/described-{NAME}"
    assert [*stored.objects] == [service, description], "the API server registers no group itself"
    assert stored.objects[service]["spec"]["service"]["port"] == 6445
    assert stored.objects[description]["status"]["conditions"] == ESTABLISHED["conditions"], "or it is not shown"
    registrar.register([])
    assert "finalizers" in stored.objects.pop(service)["metadata"]
    assert stored.objects == {}, "no finalizer holds the description"


def test_nothing_is_described_before_the_api_server_hands_on():
    """Else its own answer would name the description as the resource of jobs, and theirs would be deleted."""
    stored = Stored()
    stored.slow_requests = 2
    Registrar(cast("Api", stored), cast("Api", stored), b"authority").register([definition()])
    assert stored.slow_requests == 0
    assert f"{DESCRIBED}/described-{NAME}" in stored.objects


def test_the_description_follows_its_definition_without_what_old_servers_refuse():
    stored = Stored()
    registrar = Registrar(cast("Api", stored), cast("Api", stored), b"authority")
    registrar.register([definition()])
    (first,) = (each for each in stored.objects.values() if each["kind"] == "CustomResourceDefinition")
    before, text = first["metadata"]["annotations"], str(first)
    assert "x-kubernetes-validations" in str(CRD) and "x-kubernetes-validations" not in text
    assert "rolloutWorkers" in text and "'enum': [None" not in text and ", None]" not in text
    registrar.register([definition(generation=2)])
    (second,) = (each for each in stored.objects.values() if each["kind"] == "CustomResourceDefinition")
    assert second["metadata"]["annotations"] != before
    assert second["spec"]["names"]["plural"] == "described-rltrainingjobs", "it serves none of the resources"
