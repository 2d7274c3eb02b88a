"""Lets the API server hand custom resources on to the CRD server: `python -m kube.registrar FOLDER`, of `pki`.

kube-apiserver registers the groups of definitions that it keeps itself. For those that the CRD server keeps this does
the same, as long as it runs: an APIService for each version of each group, and the schema for kubectl.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kube.api import Api, ApiError
from kube.progress import ClusterError, wait_until

PORT = 6445
SERVICE = {"namespace": "kube-system", "name": "crd-server"}
HOST = f"{SERVICE['name']}.{SERVICE['namespace']}.svc"  # what the server's certificate must name
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
TAKEN_OVER = "v1.apiextensions.k8s.io"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# The API server goes on keeping definitions under this older version, and describes them to kubectl.
DESCRIBED = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"
KINDS = {
    "services": {"apiVersion": "v1", "kind": "Service"},
    "apiservices": {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"},
    "customresourcedefinitions": {"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition"},
}
PRIORITY = {"groupPriorityMinimum": 1000, "versionPriority": 100}
MINE = "reef-registrar"  # label of what is made here
AUTOMATIC = "kube-aggregator.kubernetes.io/automanaged"  # label of what the API server would set back
UNSERVED = "described-"
OF = "reef-registrar/of"  # annotation: the definition that a description was made from
RETRY_S = 0.5
Object = dict[str, Any]


class Registrar:
    """Keeps the API server's list of groups as the CRD server has them.

    Args:
        api: the API server.
        crds: the CRD server itself: an API server that starts does not yet hand on to it.
        authority: the certificate, as PEM, that signed the CRD server's.
    """

    def __init__(self, api: Api, crds: Api, authority: bytes) -> None:
        self._api, self._crds = api, crds
        self._remote = {"caBundle": base64.b64encode(authority).decode(), "service": {**SERVICE, "port": PORT}}

    def take_over(self) -> None:
        """Hand definitions themselves on, for as long as the cluster lives."""
        spec = {"type": "ExternalName", "externalName": "localhost"}
        self._put(f"/api/v1/namespaces/{SERVICE['namespace']}/services", SERVICE["name"], {"spec": spec})
        self._put(SERVICES, TAKEN_OVER, {"spec": self._remote})

    def follow(self) -> None:
        """Register what comes and withdraw what goes, until the connection breaks."""
        found = self._crds.request("GET", DEFINITIONS)
        self.register(found["items"])
        version = found["metadata"]["resourceVersion"]
        for _ in self._crds.stream(f"{DEFINITIONS}?watch=true&resourceVersion={version}", timeout_s=3600):
            self.register(self._crds.request("GET", DEFINITIONS)["items"])

    def register(self, definitions: Iterable[Object]) -> None:
        """Bring the API server's list in line with these definitions."""
        established = {each["metadata"]["name"]: each for each in definitions if is_established(each)}
        groups = {}
        for definition in established.values():
            for version in served_versions(definition["spec"]):
                groups[f"{version}.{definition['spec']['group']}"] = {
                    "group": definition["spec"]["group"],
                    "version": version,
                }
        for name, group in groups.items():
            self._put(SERVICES, name, {"spec": {**self._remote, **group, **PRIORITY}})
        for definition in established.values():
            self._await_handing_on(definition["spec"])
        self._describe(established)  # after its APIService is there, as the API server would make one of its own
        for name in self._mine(SERVICES).keys() - groups.keys() - {TAKEN_OVER}:
            self._api.request("DELETE", f"{SERVICES}/{name}")

    def _await_handing_on(self, spec: Object) -> None:
        """Wait until the API server hands on requests for the resources of a definition.

        Before, it would answer by the description, which has the kind of the resource and another name. The garbage
        collector would look for owners under that name, find none, and delete what they own for as long as it runs.
        """
        for version in served_versions(spec):
            path, plural = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]

            def hands_on(path: str = path, plural: str = plural) -> bool:
                return plural in {each["name"] for each in self._api.request("GET", path)["resources"]}

            # A definition that is gone by now is not waited for long.
            wait_until(f"the API server to hand on {path}", hands_on, timeout_s=10)

    def _describe(self, definitions: dict[str, Object]) -> None:
        described, wanted = self._mine(DESCRIBED), {f"{UNSERVED}{name}": found for name, found in definitions.items()}
        for name in described.keys() - wanted.keys():
            self._api.request("DELETE", f"{DESCRIBED}/{name}")
            # The API server's own controllers would look after these, but they are sent to the CRD server.
            self._api.request("PATCH", f"{DESCRIBED}/{name}", {"metadata": {"finalizers": None}}, kind="merge")
        for name, definition in wanted.items():
            of = {"annotations": {OF: f"{definition['metadata']['uid']}.{definition['metadata']['generation']}"}}
            if name not in described or described[name]["metadata"]["annotations"] != of["annotations"]:
                spec = description(definition["spec"])
                self._put(DESCRIBED, name, {"metadata": of, "spec": spec})
                status = {"acceptedNames": spec["names"], "conditions": definition["status"]["conditions"]}
                self._api.request("PATCH", f"{DESCRIBED}/{name}/status", {"status": status}, kind="merge")

    def _mine(self, path: str) -> dict[str, Object]:
        found = self._api.request("GET", f"{path}?labelSelector={MINE}")["items"]
        return {each["metadata"]["name"]: each for each in found}

    def _put(self, path: str, name: str, body: Object) -> None:
        """Create an object, or change the one of this name."""
        metadata = {"name": name, "labels": {MINE: "true", AUTOMATIC: None}, **body.get("metadata", {})}
        body = {**KINDS[path.rpartition("/")[2]], **body, "metadata": metadata}
        try:
            self._api.request("PATCH", f"{path}/{name}", body, kind="merge")
        except ApiError as refused:
            if refused.status != 404:
                raise
            del metadata["labels"][AUTOMATIC]
            self._api.request("POST", path, body)


def served_versions(spec: Object) -> list[str]:
    """Names of the versions of a definition that are served."""
    return [version["name"] for version in spec["versions"] if version["served"]]


def is_established(definition: Object) -> bool:
    """Whether its resources are served."""
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def description(spec: Object) -> Object:
    """A definition's kind and schema in the form of v1beta1, with names under which nobody asks for resources."""
    stored = next(version for version in spec["versions"] if version["storage"])
    names = {key: spec["names"][key] for key in ("kind", "listKind")}
    names |= {key: f"{UNSERVED}{spec['names'][key]}" for key in ("plural", "singular")}
    return {
        "group": spec["group"],
        "names": names,
        "scope": spec["scope"],
        "preserveUnknownFields": False,
        "validation": {"openAPIV3Schema": known_before_cel(stored["schema"]["openAPIV3Schema"])},
        "versions": [{key: version[key] for key in ("name", "served", "storage")} for version in spec["versions"]],
    }


def known_before_cel(schema: Any) -> Any:
    """A schema without CEL rules, and lists of values that hold null: servers before 1.25 do not take them."""
    if isinstance(schema, list):
        return [known_before_cel(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"x-kubernetes-validations"} | ({"enum"} if None in (schema.get("enum") or ()) else set())
    return {key: known_before_cel(value) for key, value in schema.items() if key not in dropped}


def main(folder: Path) -> None:
    """Never returns; what fails is tried again."""
    api, crds = (Api(folder / f"{user}.kubeconfig") for user in ("admin", "registrar"))
    registrar = Registrar(api, crds, (folder / "ca.crt").read_bytes())
    while True:
        try:
            registrar.take_over()
            registrar.follow()
        except (ClusterError, OSError) as problem:
            print(problem, file=sys.stderr, flush=True)
        time.sleep(RETRY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
