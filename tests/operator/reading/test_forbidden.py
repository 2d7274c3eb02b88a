"""What a cluster forbids is found wherever a document can say it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from job_objects import NAME, job, observed, pool, situation

from reef_operator.conditions import Reason
from reef_operator.model import Settings
from reef_operator.reading.document import resolve
from reef_operator.reading.forbidden import DEFAULT, FORBIDDABLE, violations
from reef_operator.reconcile import reconcile

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("serviceAccountName", {"serviceAccountName": "reef"}, "serviceAccountName"),
    ("serviceAccountName", {"serviceAccount": "reef"}, "serviceAccount"),
    ("serviceAccountToken", {"automountServiceAccountToken": True}, "automountServiceAccountToken"),
    (
        "serviceAccountToken",
        {
            "volumes": [
                {"name": "a", "projected": {"sources": [{"secret": {}}, {"serviceAccountToken": {"path": "t"}}]}}
            ]
        },
        "volumes[0].projected.sources[1].serviceAccountToken",
    ),
    ("hostPath", {"volumes": [{"name": "a", "emptyDir": {}}, {"hostPath": {"path": "/"}}]}, "volumes[1].hostPath"),
    ("hostPath", {"volumes": [{"name": "tmp", "hostPath": {}}]}, "volumes[0].hostPath"),
    ("hostNetwork", {"hostNetwork": True}, "hostNetwork"),
    ("hostNetwork", {"containers": [{"ports": [{"hostPort": 80}]}]}, "containers[0].ports[0].hostPort"),
    ("hostPID", {"hostPID": True}, "hostPID"),
    ("hostIPC", {"hostIPC": True}, "hostIPC"),
    *[
        ("privileged", {field: [{"name": "a"}, {"name": "reef", "securityContext": security}]}, f"{field}[1].{path}")
        for field in ("containers", "initContainers", "ephemeralContainers")
        for security, path in [
            ({"privileged": True}, "securityContext.privileged"),
            ({"allowPrivilegeEscalation": True}, "securityContext.allowPrivilegeEscalation"),
            ({"capabilities": {"add": ["SYS_ADMIN"]}}, "securityContext.capabilities.add"),
            ({"procMount": "Unmasked"}, "securityContext.procMount"),
            ({"windowsOptions": {"hostProcess": True}}, "securityContext.windowsOptions.hostProcess"),
            ({"seLinuxOptions": {"type": "spc_t"}}, "securityContext.seLinuxOptions.type"),
            ({"seLinuxOptions": {"user": "system_u"}}, "securityContext.seLinuxOptions.user"),
            ({"seccompProfile": {"type": "Unconfined"}}, "securityContext.seccompProfile.type"),
            ({"appArmorProfile": {"type": "Unconfined"}}, "securityContext.appArmorProfile.type"),
        ]
    ],
    ("privileged", {"securityContext": {"seLinuxOptions": {"role": "r"}}}, "securityContext.seLinuxOptions.role"),
    (
        "privileged",
        {"securityContext": {"windowsOptions": {"hostProcess": True}}},
        "securityContext.windowsOptions.hostProcess",
    ),
]
ALLOWED: list[dict[str, Any]] = [
    {},
    {"hostNetwork": False, "hostPID": None, "automountServiceAccountToken": False, "serviceAccountName": ""},
    {"containers": [{"name": "reef", "ports": [{"containerPort": 80}], "securityContext": {"privileged": False}}]},
    {"containers": [{"securityContext": {"capabilities": {"drop": ["ALL"], "add": []}, "procMount": "Default"}}]},
    {"securityContext": {"seLinuxOptions": {"type": "container_t", "level": "s0"}, "seccompProfile": "none"}},
    {"containers": [{"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}}]},
    {"volumes": [{"persistentVolumeClaim": {}}, {"projected": {"sources": [{"secret": {}}]}}]},
    {"volumes": "many", "containers": {"a": 1}, "initContainers": [7], "securityContext": "none"},
]


@pytest.mark.parametrize("place", ["head", "workers[1]"])
@pytest.mark.parametrize(("name", "template", "path"), CASES)
def test_a_forbidden_field_is_named(place: str, name: str, template: dict[str, Any], path: str) -> None:
    settings = {"template": {"spec": template}}
    spec = {"head": settings} if place == "head" else {"workers": [{"name": "a"}, {"name": "b"} | settings]}
    (text,) = violations(spec, {name})
    assert text.startswith(f"spec.{place}.template.spec.{path} is ")
    assert f"templates.forbid: {name}" in text
    assert violations(spec, set(FORBIDDABLE) - {name}) == []


@pytest.mark.parametrize("template", ALLOWED, ids=range(len(ALLOWED)))
def test_what_asks_for_nothing_is_let_through(template: dict[str, Any]) -> None:
    for strange in ({"spec": template}, None, "text"):
        assert violations({"head": {"template": strange}, "workers": [{"template": strange}]}, FORBIDDABLE) == []


HOST = {"template": {"spec": {"hostNetwork": True}}}
SETTINGS = Settings(forbidden=DEFAULT)


def test_such_a_job_is_invalid_and_nothing_is_made_from_it() -> None:
    for given in (job(head=HOST), job(workers=[pool() | HOST])):
        plan = reconcile(situation(given, settings=SETTINGS))
        assert plan.actions == () and plan.status is not None
        assert plan.status["phase"] == "Invalid"
        assert "template.spec.hostNetwork is True, which this cluster forbids" in plan.status["message"]
        assert resolve(observed(given)).job is not None, "the cluster decides"


def test_a_change_to_it_leaves_the_job_as_it_was_and_a_record_that_holds_it_does_not_count() -> None:
    def kept_in(document: Any) -> dict[tuple[str, str], Any]:
        data = {"job.json": json.dumps(document)}
        return {("ConfigMap", f"{NAME}-job"): {"metadata": {"name": f"{NAME}-job"}, "data": data}}

    before = resolve(observed(job(), settings=SETTINGS)).document
    after = resolve(observed(job(head=HOST), children=kept_in(before), settings=SETTINGS))
    assert after.document == before and after.accepted.reason == Reason.INVALID_DOCUMENT
    smuggled = resolve(observed(job(head=HOST))).document
    assert resolve(observed(job(head=HOST), children=kept_in(smuggled), settings=SETTINGS)).document is None
    assert resolve(observed(job(), children=kept_in(smuggled), settings=SETTINGS)).document == before
