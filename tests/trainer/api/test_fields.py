"""Quantities and what pods and pools ask for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reef.api import Gpu, Head, JobSpec, NodePool
from reef.api.fields import quantity_value
from reef.api.pods import Resources
from reef.api.spec import Environment


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2.0), ("0.5", 0.5), ("500m", 0.5), ("1k", 1000.0), ("1Ki", 1024.0), ("4Gi", 4 * 1024**3), ("1e3", 1000.0)],
)
def test_quantities(text: str, value: float) -> None:
    assert quantity_value(text) == value


@pytest.mark.parametrize("text", ["1e400", "9000E", "1e30"])
def test_what_kubernetes_cannot_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than Kubernetes can count"):
        quantity_value(text)
    with pytest.raises(ValidationError, match="more than Kubernetes can count"):
        Resources(limits={"nvidia.com/gpu": text})


def test_cpus_are_the_limit_else_the_request_else_one() -> None:
    assert Head().cpus == 1
    assert Head(resources=Resources(requests={"cpu": "1500m"})).cpus == 1.5
    assert Head(resources=Resources(requests={"cpu": "1500m"}, limits={"cpu": "2"})).cpus == 2
    assert Head(gpu=Gpu(count=2)).gpus == 2


MIG, INTEL = "nvidia.com/mig-1g.5gb", "gpu.intel.com/i915"


def template(limits: Any, name: str = "reef") -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "resources": {"limits": limits}}]}}


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 4}}}, 1),
        ({"resources": {"requests": {MIG: 2}, "limits": {MIG: 2}}}, 2),
        ({"resources": {"limits": {"amd.com/gpu": 1, INTEL: 2, "nvidia.com/gpu.shared": 3}}}, 6),
        ({"resources": {"limits": {"aliyun.com/gpu-mem": 8, "gpu.intel.com/millicores": 100, "a.b/fpga": 1}}}, 0),
        ({"gpu": {"count": 2, "resourceName": "example.com/accelerator"}, "resources": {"limits": {MIG: 1}}}, 3),
        ({"template": template({"nvidia.com/gpu": "2"})}, 2),
        ({"template": template({"nvidia.com/gpu": "2"}, "side-car")}, 0),
        ({"template": template({"nvidia.com/gpu": None}), "resources": {"limits": {"nvidia.com/gpu": 1}}}, 0),
        ({"template": template({"nvidia.com/gpu": 2}), "gpu": {"count": 2}}, 2),
        *(({"template": nonsense}, 0) for nonsense in ({"spec": 1}, {"spec": {"containers": [1]}}, template(5))),
        ({"template": template({"nvidia.com/gpu": "many"})}, 0),
        ({"template": template({"nvidia.com/gpu": "1e400"})}, 0),
    ],
)
def test_gpus_count_wherever_they_are_asked_for(fields: dict[str, Any], gpus: int) -> None:
    assert Head.model_validate(fields, by_alias=True).gpus == gpus


def spec(**fields: Any) -> JobSpec:
    return JobSpec(algorithm="PPO", environment=Environment(name="E"), stop={"training_iteration": 1}, **fields)


def test_rollout_workers_are_counted_over_the_pools() -> None:
    pools = [NodePool(name="a", replicas=3), NodePool(name="b", replicas=2, rollout_workers=4)]
    assert spec().num_rollout_workers == 0
    assert spec(workers=pools).num_rollout_workers == 3 + 8
    assert spec(workers=[NodePool(name="learners", replicas=2, rollout_workers=0)]).num_rollout_workers == 0


def test_replicas_of_the_job_replace_those_of_the_first_pool_alone() -> None:
    pools = [NodePool(name="a", replicas=3), NodePool(name="b", replicas=2)]
    assert spec(workers=pools, replicas=0).pool_replicas == {"a": 0, "b": 2}
    assert spec(workers=pools, replicas=7).num_rollout_workers == 9


def test_a_pool_trains_on_with_one_pod_unless_told_otherwise() -> None:
    assert NodePool(name="a", replicas=3).least(3) == 1
    assert NodePool(name="a", replicas=3).least(0) == 0
    assert [NodePool(name="a", replicas=3, min_replicas=2).least(wanted) for wanted in (1, 3)] == [1, 2]
