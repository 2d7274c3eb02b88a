"""Finds fields in a document's pod templates that the cluster's administrator forbids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

SETTING = "templates.forbid"  # in the chart's values
CONTAINER_TYPES = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")  # SELinux types
Found = Iterator[tuple[str, Any]]  # path in the pod's spec, value


def _named(*fields: str) -> Callable[[Mapping[str, Any]], Found]:
    def find(pod: Mapping[str, Any]) -> Found:
        yield from ((field, pod[field]) for field in fields if pod.get(field))

    return find


def _service_account_tokens(pod: Mapping[str, Any]) -> Found:
    yield from _named("automountServiceAccountToken")(pod)
    for path, volume in _entries(pod, "volumes"):
        for inner, source in _entries(_mapping(volume.get("projected")), "sources"):
            if source.get("serviceAccountToken") is not None:
                yield f"{path}.projected.{inner}.serviceAccountToken", source["serviceAccountToken"]


def _host_paths(pod: Mapping[str, Any]) -> Found:
    for path, volume in _entries(pod, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"{path}.hostPath", volume["hostPath"]


def _host_network(pod: Mapping[str, Any]) -> Found:
    yield from _named("hostNetwork")(pod)
    for path, container in _containers(pod):
        for inner, port in _entries(container, "ports"):
            if port.get("hostPort"):
                yield f"{path}.{inner}.hostPort", port["hostPort"]


def _privileges(pod: Mapping[str, Any]) -> Found:
    for path, holder in (("", pod), *((f"{path}.", container) for path, container in _containers(pod))):
        security = _mapping(holder.get("securityContext"))
        found = {
            "privileged": security.get("privileged"),
            "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation"),
            "capabilities.add": _mapping(security.get("capabilities")).get("add"),
            "procMount": security.get("procMount") not in (None, "Default") and security["procMount"],
            "windowsOptions.hostProcess": _mapping(security.get("windowsOptions")).get("hostProcess"),
            "seccompProfile.type": _is_unconfined(security, "seccompProfile"),
            "appArmorProfile.type": _is_unconfined(security, "appArmorProfile"),
            **_selinux(_mapping(security.get("seLinuxOptions"))),
        }
        yield from ((f"{path}securityContext.{field}", value) for field, value in found.items() if value)


def _is_unconfined(security: Mapping[str, Any], profile: str) -> str | None:
    return "Unconfined" if _mapping(security.get(profile)).get("type") == "Unconfined" else None


def _selinux(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return SELinux options that Kubernetes' Pod Security Standard "baseline" does not allow."""
    found = {f"seLinuxOptions.{field}": options.get(field) for field in ("user", "role", "type")}
    return {path: value for path, value in found.items() if value not in CONTAINER_TYPES}


FORBIDDABLE: Mapping[str, Callable[[Mapping[str, Any]], Found]] = {
    "serviceAccountName": _named("serviceAccountName", "serviceAccount"),
    "serviceAccountToken": _service_account_tokens,
    "hostPath": _host_paths,
    "hostNetwork": _host_network,
    "hostPID": _named("hostPID"),
    "hostIPC": _named("hostIPC"),
    "privileged": _privileges,
}
# Fields that give control of the node. Service accounts are not among them: clouds give pods their identity through
# them, and a job can only name those of its own namespace.
DEFAULT = ("hostPath", "hostNetwork", "hostPID", "hostIPC", "privileged")


def violations(spec: Mapping[str, Any], forbidden: Collection[str]) -> list[str]:
    """Return a message for each forbidden field in the templates of a valid document."""
    places = [("head", _mapping(spec.get("head"))), *_entries(spec, "workers")]
    return [
        f"spec.{place}.template.spec.{path} is {value!r}, which this cluster forbids ({SETTING}: {name}): remove it"
        for place, settings in places
        for name in FORBIDDABLE
        if name in forbidden
        for path, value in FORBIDDABLE[name](_mapping(_mapping(settings.get("template")).get("spec")))
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(holder: Mapping[str, Any], field: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and value of the entries of a list; the API server refuses malformed lists."""
    found = holder.get(field)
    for index, entry in enumerate(found if isinstance(found, list) else []):
        yield f"{field}[{index}]", _mapping(entry)


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from _entries(pod, field)
