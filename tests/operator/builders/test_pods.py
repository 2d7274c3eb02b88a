"""The pods of head and workers: safe, placed where the document says, with the environment that they rely on.

It tests reef_operator.builders.pod_template too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from job_objects import CLAIM, blueprint, pool

from reef_operator import names
from reef_operator.builders.head_job import head_job
from reef_operator.builders.parts import Blueprint
from reef_operator.builders.pool_deployment import pool_deployment
from reef_operator.model import Server, Settings


def head_pod(**spec: Any) -> dict[str, Any]:
    return head_job(blueprint(**spec))["spec"]["template"]  # type: ignore[no-any-return]


def worker_pod(settings: Settings | None = None, **fields: Any) -> dict[str, Any]:
    plan = blueprint(settings=settings, workers=[pool(**fields)])
    return pool_deployment(plan, plan.job.spec.workers[0])["spec"]["template"]  # type: ignore[no-any-return]


def container(template: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in template["spec"]["containers"] if each["name"] == "reef")


def environment(template: dict[str, Any]) -> dict[str, Any]:
    found = {each["name"]: each.get("value", each.get("valueFrom")) for each in container(template)["env"]}
    assert len(found) == len(container(template)["env"]), "a variable is set twice"
    return found


def mounts(template: dict[str, Any]) -> dict[str, Any]:
    return {mount["mountPath"]: mount for mount in container(template)["volumeMounts"]}


@pytest.mark.parametrize("template", [head_pod(), worker_pod()], ids=["head", "worker"])
def test_pods_fit_the_restricted_level_and_carry_no_api_token(template: dict[str, Any]) -> None:
    pod = template["spec"]
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True and security["runAsUser"] == 1000 and security["fsGroup"] == 1000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(template)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {volume["name"] for volume in pod["volumes"]} <= {"tmp", "shm", "job", "storage"}
    assert next(volume for volume in pod["volumes"] if volume["name"] == "shm")["emptyDir"] == {"medium": "Memory"}
    assert {"/tmp", "/dev/shm", "/etc/reef"} <= mounts(template).keys() and mounts(template)["/etc/reef"]["readOnly"]
    assert container(template)["terminationMessagePath"] == "/dev/termination-log"


def test_what_head_and_workers_learn_from_their_environment() -> None:
    both = {
        "REEF_JOB_NAME": "pole",
        "REEF_NAMESPACE": "training",
        "REEF_JOB_UID": "job-uid",
        "REEF_JOB_FILE": "/etc/reef/job.json",
        "REEF_CPUS": "1",
        "REEF_GPUS": "0",
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "HOME": "/tmp",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": {"secretKeyRef": {"name": "pole-ray-token", "key": "token"}},
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
    }
    assert environment(head_pod()) == both | {"REEF_STORAGE_PATH": "/var/lib/reef", "REEF_LINGER_SECONDS": "30"}
    assert environment(worker_pod()) == both | {
        "REEF_HEAD_ADDRESS": "pole-head.training.svc.cluster.local:6379",
        "REEF_POOL": "cpu",
    }
    for_learners = worker_pod(rolloutWorkers=0)
    assert environment(for_learners)["REEF_TAKES_WORKERS"] == "0"


def test_commands_and_probes() -> None:
    head, worker = container(head_pod()), container(worker_pod())
    assert head["command"] == ["python", "-m", "reef.job.head"]
    assert worker["command"] == ["python", "-m", "reef.job.worker"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert head[probe]["httpGet"] == {"path": "/healthz", "port": 8080}
    assert worker["readinessProbe"]["exec"]["command"] == ["test", "-e", "/tmp/reef/joined"]
    assert "livenessProbe" not in worker, "a worker outlives its head"


def test_the_heads_batch_job() -> None:
    spec = head_job(blueprint(faultTolerance={"backoffLimit": 5, "terminationGracePeriodSeconds": 90}))["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (5, 1, 1)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 90


@pytest.mark.parametrize(("minor", "known"), [(20, False), (25, False), (26, True), (35, True)])
def test_the_failure_policy_where_the_server_knows_it(minor: int, known: bool) -> None:
    spec = head_job(blueprint(server=Server(minor=minor), faultTolerance={"noRetryExitCodes": [9, 2, 9]}))["spec"]
    assert ("podFailurePolicy" in spec) is known
    if known:
        ignored, failed = spec["podFailurePolicy"]["rules"]
        assert ignored["action"] == "Ignore" and ignored["onPodConditions"][0]["type"] == "DisruptionTarget"
        assert failed["onExitCodes"] == {"containerName": "reef", "operator": "In", "values": [2, 9]}


def test_no_failure_rule_without_exit_codes() -> None:
    spec = head_job(blueprint(server=Server(minor=30), faultTolerance={"noRetryExitCodes": []}))["spec"]
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore"]


@pytest.mark.parametrize(
    ("checkpoint", "volume", "sub_path"),
    [
        (None, {"emptyDir": {}}, None),
        (CLAIM, {"persistentVolumeClaim": {"claimName": "results"}}, "pole"),
        (
            {"storage": {"persistentVolumeClaim": {"claimName": "results", "subPath": "a/b"}}},
            {"persistentVolumeClaim": {"claimName": "results"}},
            "a/b",
        ),
        ({"storage": {"uri": "s3://b/f"}}, {"emptyDir": {}}, None),
    ],
)
def test_storage(checkpoint: dict[str, Any] | None, volume: dict[str, Any], sub_path: str | None) -> None:
    template = head_pod(checkpoint=checkpoint)
    assert {"name": "storage", **volume} in template["spec"]["volumes"]
    assert mounts(template)["/var/lib/reef"].get("subPath") == sub_path
    assert "/var/lib/reef" not in mounts(worker_pod())


def test_credentials_of_the_object_store() -> None:
    template = head_pod(checkpoint={"storage": {"uri": "s3://b/f", "secretRef": {"name": "s3"}}})
    assert container(template)["envFrom"] == [{"secretRef": {"name": "s3"}}]


def tolerated(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


@pytest.mark.parametrize(
    ("gpu", "limits", "tolerations", "selector"),
    [
        ({"count": 2}, {"nvidia.com/gpu": "2"}, tolerated("nvidia.com/gpu"), None),
        (
            {"count": 1, "product": "NVIDIA-A100-SXM4-80GB"},
            {"nvidia.com/gpu": "1"},
            tolerated("nvidia.com/gpu"),
            {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
        ),
        (
            {"count": 3, "resourceName": "nvidia.com/mig-1g.5gb", "product": "A100-MIG"},
            {"nvidia.com/mig-1g.5gb": "3"},
            tolerated("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"),
            {"nvidia.com/gpu.product": "A100-MIG"},
        ),
        (
            {"count": 1, "resourceName": "amd.com/gpu", "product": "MI300"},
            {"amd.com/gpu": "1"},
            tolerated("amd.com/gpu"),
            {"amd.com/gpu.product": "MI300"},
        ),
    ],
)
def test_gpus(
    gpu: dict[str, Any], limits: dict[str, str], tolerations: list[Any], selector: dict[str, str] | None
) -> None:
    for template in (worker_pod(gpu=gpu), head_pod(head={"gpu": gpu})):
        assert container(template)["resources"] == {"requests": {"cpu": "1"}, "limits": limits}
        assert template["spec"]["tolerations"] == tolerations
        assert template["spec"].get("nodeSelector") == selector
        assert environment(template)["REEF_GPUS"] == next(iter(limits.values()))


def test_ray_is_told_of_gpus_among_the_resources() -> None:
    assert environment(worker_pod(resources={"limits": {"nvidia.com/gpu": 2}}))["REEF_GPUS"] == "2"


@pytest.mark.parametrize(
    ("resources", "expected", "cpus"),
    [
        ({}, {"requests": {"cpu": "1"}}, "1"),
        ({"requests": {"cpu": 4, "memory": "8Gi"}}, {"requests": {"cpu": "4", "memory": "8Gi"}}, "4"),
        ({"limits": {"cpu": "500m"}}, {"limits": {"cpu": "500m"}}, "0.5"),
        ({"requests": {"memory": "1Gi"}}, {"requests": {"memory": "1Gi", "cpu": "1"}}, "1"),
    ],
)
def test_resources(resources: dict[str, Any], expected: dict[str, Any], cpus: str) -> None:
    template = worker_pod(resources=resources)
    assert container(template)["resources"] == expected and environment(template)["REEF_CPUS"] == cpus


def test_placement() -> None:
    spec = worker_pod(
        gpu={"count": 1},
        nodeSelector={"zone": "a"},
        tolerations=[{"key": "spot", "operator": "Exists"}],
        affinity={"podAntiAffinity": {}},
        priorityClassName="low",
        schedulerName="volcano",
    )["spec"]
    assert spec["nodeSelector"] == {"zone": "a"} and spec["affinity"] == {"podAntiAffinity": {}}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}, *tolerated("nvidia.com/gpu")]
    assert (spec["priorityClassName"], spec["schedulerName"]) == ("low", "volcano")
    assert not {"nodeSelector", "tolerations", "affinity", "schedulerName"} & worker_pod()["spec"].keys()


def test_images() -> None:
    assert container(worker_pod(Settings(trainer_image="t:1")))["image"] == "t:1"
    template = head_pod(image="own:1", imagePullPolicy="Never", imagePullSecrets=["registry"])
    assert (container(template)["image"], container(template)["imagePullPolicy"]) == ("own:1", "Never")
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_the_users_template_lies_over_the_generated_one() -> None:
    template = worker_pod(
        template={
            "metadata": {"labels": {"team": "robots", "reef.dev/job": "stolen"}, "annotations": {"a": "b"}},
            "spec": {
                "hostNetwork": False,
                "volumes": [{"name": "data", "emptyDir": {}}, {"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}],
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": "reef",
                        "env": [{"name": "HOME", "value": "/data"}, {"name": "MORE", "value": "1"}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    },
                    {"name": "logger", "image": "logger:1"},
                ],
            },
        }
    )
    assert template["metadata"]["labels"].items() >= {"team": "robots", "reef.dev/job": "pole"}.items()
    assert template["metadata"]["annotations"] == {"a": "b"}
    assert [each["name"] for each in template["spec"]["containers"]] == ["reef", "logger"]
    assert environment(template)["HOME"] == "/data" and environment(template)["MORE"] == "1"
    assert environment(template)["REEF_POOL"] == "cpu" and "/data" in mounts(template) and "/tmp" in mounts(template)
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"sizeLimit": "1Gi"} and "data" in volumes
    assert container(template)["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_head_is_scraped_unless_its_template_says_otherwise() -> None:
    assert head_pod()["metadata"]["annotations"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    off = head_pod(head={"template": {"metadata": {"annotations": {"prometheus.io/scrape": "false"}}}})
    assert off["metadata"]["annotations"]["prometheus.io/scrape"] == "false"


def test_the_deployment_finds_its_own_pods_and_no_others() -> None:
    plan = blueprint(workers=[pool("a"), pool("b")])
    one, other = (pool_deployment(plan, each) for each in plan.job.spec.workers)
    selector = one["spec"]["selector"]["matchLabels"]
    assert selector.items() <= one["spec"]["template"]["metadata"]["labels"].items()
    assert not selector.items() <= other["spec"]["template"]["metadata"]["labels"].items()
    assert one["spec"]["strategy"] == {"type": "Recreate"} and one["spec"]["replicas"] == 2


def pool_hash(blueprint: Blueprint) -> str:
    deployment = pool_deployment(blueprint, blueprint.job.spec.workers[0])
    return deployment["metadata"]["annotations"][names.POOL_ANNOTATION]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"replicas": 9}, True),
        ({"minReplicas": 0}, True),
        ({"rolloutWorkers": 3}, True),
        ({"rolloutWorkers": 0}, False),  # which its pods' Ray is told when it starts
        ({"nodeSelector": {"a": "b"}}, False),
        ({"gpu": {"count": 1}}, False),
        ({"template": {"spec": {"hostNetwork": True}}}, False),
    ],
)
def test_what_makes_new_pods_necessary(fields: dict[str, Any], same: bool) -> None:
    before, after = blueprint(), blueprint(workers=[pool(**{"replicas": 2} | fields)])
    assert (pool_hash(before) == pool_hash(after)) is same


def test_workers_that_begin_to_use_the_store_are_made_again() -> None:
    stored = {"checkpoint": {"storage": {"uri": "s3://b/f", "secretRef": {"name": "s3"}}}}
    before, other = blueprint(**stored), blueprint(**stored, config={"lr": 0.1})
    assert pool_hash(before) == pool_hash(other) == pool_hash(blueprint())
    assert pool_hash(before) != pool_hash(blueprint(**stored, config={"output": "s3://b/episodes"}))


def test_another_operators_settings_make_no_new_pods_necessary() -> None:
    before, after = blueprint(), blueprint(settings=Settings(cluster_domain="other", linger_seconds=5))
    assert pool_hash(before) == pool_hash(after)


VALUES = st.none() | st.integers(0, 1) | st.text("ab", max_size=2)
KEYS = ["metadata", "labels", "annotations", "spec", "containers", "volumes", "env", "name", "tolerations", "reef"]
TEMPLATES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)


@hypothesis_settings(max_examples=200, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["metadata", "spec", "reef"]), TEMPLATES, max_size=3))
def test_a_nonsensical_template_is_for_the_api_server_to_refuse(template: dict[str, Any]) -> None:
    for built in (head_pod(head={"template": template}), worker_pod(template=template)):
        assert built["metadata"]["labels"]["reef.dev/job"] == "pole"
