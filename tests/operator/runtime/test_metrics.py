"""Job metrics come from live objects: what is deleted is gone at the next scrape."""

from __future__ import annotations

from prometheus_client import generate_latest

from reef_operator.runtime.metrics import Metrics

KEY = {"namespace": "ns", "job_name": "j"}


def job(**status):
    spec = {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}}
    return {"metadata": {"namespace": "ns", "name": "j", "uid": "u"}, "spec": spec, "status": status}


def pod(component: str, restarts: int, reason: str):
    metadata = {"namespace": "ns", "name": "p", "labels": {"reef.dev/job": "j", "reef.dev/component": component}}
    status = {"restartCount": restarts, "lastState": {"terminated": {"reason": reason}}}
    return {"metadata": metadata, "spec": {}, "status": {"containerStatuses": [status]}}


def test_a_job_is_shown_while_it_exists_and_not_after():
    metrics, jobs = Metrics(), [job(phase="Running", attempts=2)]
    metrics.jobs(lambda: jobs, lambda: [])
    value = metrics.registry.get_sample_value
    assert value("reef_job_attempts", KEY) == 2
    assert b'job_name="j"' in generate_latest(metrics.registry)
    jobs.clear()
    assert value("reef_job_attempts", KEY) is None
    assert b'job_name="j"' not in generate_latest(metrics.registry)


def test_one_series_per_phase():
    metrics = Metrics()
    metrics.jobs(lambda: [job(phase="Running")], lambda: [])
    phases = [
        line for line in generate_latest(metrics.registry).decode().splitlines() if line.startswith("reef_job_phase{")
    ]
    assert len(phases) == 9
    assert [line for line in phases if line.endswith(" 1.0")] == [
        'reef_job_phase{job_name="j",namespace="ns",phase="Running"} 1.0'
    ]


def test_the_status_is_shown_as_numbers_and_times_as_seconds():
    metrics = Metrics()
    status = {
        "workers": {"desired": 3, "ready": 2, "recreated": 1},
        "checkpoint": {"path": "/x", "iteration": 4, "time": "2026-01-01T00:00:10Z"},
        "training": {"iteration": 5, "rewardMean": -1.5},
        "evaluation": {"rewardMean": 200.0},
    }
    metrics.jobs(lambda: [job(**status)], lambda: [pod("worker", 2, "OOMKilled"), pod("worker", 1, "OOMKilled")])
    value = metrics.registry.get_sample_value
    assert value("reef_job_workers_ready", KEY) == 2
    assert value("reef_job_checkpoint_timestamp_seconds", KEY) == 1767225610
    assert value("reef_job_training_reward_mean", KEY) == -1.5
    assert value("reef_job_evaluation_reward_mean", KEY) == 200
    assert value("reef_job_training_reward_max", KEY) is None
    assert value("reef_job_container_restarts", {**KEY, "component": "worker", "reason": "OOMKilled"}) == 3
    labels = {**KEY, "uid": "u", "algorithm": "PPO", "environment": "CartPole-v1"}
    assert value("reef_job_info", labels) == 1


def test_pods_with_gpus_are_named_and_others_are_not():
    def with_limits(name: str, *limits: dict[str, str], phase: str = "Running"):
        made = pod("worker", 0, "")
        containers = [{"name": f"c{index}", "resources": {"limits": each}} for index, each in enumerate(limits)]
        return {"metadata": made["metadata"] | {"name": name}, "spec": {"containers": containers}} | {
            "status": {"phase": phase}
        }

    pods = [
        with_limits("whole", {"nvidia.com/gpu": "2", "cpu": "4"}, {"memory": "1Gi"}),
        with_limits("slices", {"nvidia.com/mig-1g.5gb": "1"}),
        with_limits("intel", {"gpu.intel.com/i915": "1"}),
        with_limits("cpu", {"cpu": "4", "memory": "1Gi", "example.com/fpga": "1"}),
        with_limits("done", {"nvidia.com/gpu": "1"}, phase="Failed"),
    ]
    metrics = Metrics()
    metrics.jobs(lambda: [job()], lambda: pods)
    lines = generate_latest(metrics.registry).decode().splitlines()
    shown = sorted(line.partition("{")[2] for line in lines if line.startswith("reef_job_pod_gpus{"))
    assert shown == [
        f'component="worker",job_name="j",namespace="ns",pod="{name}"}} {count}.0'
        for name, count in (("intel", 1), ("slices", 1), ("whole", 2))
    ]


def test_a_document_that_is_wrong_does_not_break_the_scrape():
    metrics = Metrics()
    wrong = {"metadata": {"namespace": "ns", "name": "j"}, "spec": {"environment": "CartPole-v1", "algorithm": None}}
    metrics.jobs(lambda: [wrong, job(attempts="many", training=None)], lambda: [])
    assert b"reef_job_phase" in generate_latest(metrics.registry)


def test_the_operators_own_gauges_are_asked_at_the_scrape():
    metrics, depth = Metrics(), [3.0]
    metrics.gauge("queue_depth", "Waiting.", lambda: depth[0])
    metrics.watches(lambda: {"Pod": 7.0}, lambda: {"Lease": 2})
    metrics.request("get", "200")
    value = metrics.registry.get_sample_value
    assert value("reef_operator_queue_depth") == 3
    assert value("reef_operator_watch_age_seconds", {"kind": "Pod"}) == 7
    assert value("reef_operator_watch_changes_total", {"kind": "Lease"}) == 2
    assert value("reef_operator_api_requests_total", {"verb": "get", "code": "200"}) == 1


def test_metrics_are_answered_and_nothing_else():
    metrics = Metrics()
    found = metrics.answer("/metrics")
    assert b"reef_operator_reconcile_seconds_count 0.0" in found.body
    assert found.content_type.startswith("text/plain; version=")
    assert metrics.answer("/").status == 404
