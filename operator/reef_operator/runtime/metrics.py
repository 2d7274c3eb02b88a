"""Prometheus metrics of the operator, and of every job that exists at the time of the scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from reef.api.pods import is_gpu
from reef.api.status import Phase
from reef.endpoint import Answer
from reef_operator.model import Object
from reef_operator.names import COMPONENT_LABEL
from reef_operator.runtime.watch import job_of_label

JOB = ("namespace", "job_name")  # Prometheus uses the label `job` itself

JOB_GAUGES = {  # name after "reef_job_": field of the status, field in it, help text
    "workers_desired": ("workers", "desired", "Worker pods that the document asks for."),
    "workers_ready": ("workers", "ready", "Worker pods that have joined."),
    "workers_recreated": ("workers", "recreated", "Rollout workers that were replaced, for whatever reason."),
    "attempts": ("attempts", "", "Heads that were started."),
    "start_timestamp_seconds": ("startTime", "", "When the operator took the job up."),
    "running_timestamp_seconds": ("runningTime", "", "When training began."),
    "active_timestamp_seconds": ("activeSince", "", "Since when it has trained without a suspension."),
    "completion_timestamp_seconds": ("completionTime", "", "When the job ended."),
    "checkpoint_timestamp_seconds": ("checkpoint", "time", "When the newest checkpoint was written."),
    "checkpoint_iteration": ("checkpoint", "iteration", "Training iteration of the newest checkpoint."),
    "training_iteration": ("training", "iteration", "Training iterations done."),
    "training_timesteps": ("training", "timesteps", "Environment steps sampled."),
    "training_episodes": ("training", "episodes", "Episodes finished."),
    "training_reward_mean": ("training", "rewardMean", "Mean episode reward of the newest training result."),
    "training_reward_min": ("training", "rewardMin", "Smallest episode reward of the newest training result."),
    "training_reward_max": ("training", "rewardMax", "Largest episode reward of the newest training result."),
    "training_steps_per_second": ("training", "stepsPerSecond", "Environment steps per second."),
    "evaluation_iteration": ("evaluation", "iteration", "Training iteration after which the newest evaluation ran."),
    "evaluation_reward_mean": ("evaluation", "rewardMean", "Mean episode reward of the newest evaluation."),
    "evaluation_reward_min": ("evaluation", "rewardMin", "Smallest episode reward of the newest evaluation."),
    "evaluation_reward_max": ("evaluation", "rewardMax", "Largest episode reward of the newest evaluation."),
}


class Metrics:
    """The operator's own metrics; none of them has a label with a job's name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.reconcile = Histogram(
            "reef_operator_reconcile_seconds", "Time of one reconcile of a job.", registry=self.registry
        )
        self.errors = Counter(
            "reef_operator_reconcile_errors", "Reconciles that failed, by reason.", ["reason"], registry=self.registry
        )
        self._requests = Counter(
            "reef_operator_api_requests", "Requests to the API server.", ["verb", "code"], registry=self.registry
        )
        self._skipped = Counter(
            "reef_operator_objects_skipped",
            "Objects skipped because they could not be read.",
            ["kind"],
            registry=self.registry,
        )
        self.resync = Gauge(
            "reef_operator_resync_timestamp_seconds", "When all jobs were last listed.", registry=self.registry
        )
        self.sweep = Gauge(
            "reef_operator_sweep_timestamp_seconds",
            "When the operator last searched for orphans.",
            registry=self.registry,
        )
        self.orphans = Counter(
            "reef_operator_orphans_deleted", "Objects deleted because their job is gone.", registry=self.registry
        )

    def answer(self, path: str) -> Answer:
        """Return the answer to a request for a path."""
        if path == "/metrics":
            return Answer(generate_latest(self.registry), CONTENT_TYPE_LATEST)
        return Answer(b"there is /metrics\n", status=HTTPStatus.NOT_FOUND)

    def skipped(self, kind: str) -> None:
        """Count an object that was skipped because it could not be read."""
        self._skipped.labels(kind).inc()

    def request(self, verb: str, code: str) -> None:
        """Count an answer of the API server."""
        self._requests.labels(verb, code).inc()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed at every scrape."""
        Gauge(f"reef_operator_{name}", text, registry=self.registry).set_function(value)

    def watches(self, ages: Callable[[], Mapping[str, float]], delivered: Callable[[], Mapping[str, int]]) -> None:
        """Add metrics of the watches: seconds of silence, and number of delivered changes, by kind."""
        self.registry.register(WatchCollector(ages, delivered))

    def jobs(self, jobs: Callable[[], Iterable[Object]], pods: Callable[[], Iterable[Object]]) -> None:
        """Add metrics of all existing jobs."""
        self.registry.register(JobCollector(jobs, pods))


class WatchCollector(Collector):
    """Metrics that show whether the watches are alive."""

    def __init__(self, ages: Callable[[], Mapping[str, float]], delivered: Callable[[], Mapping[str, int]]) -> None:
        self._ages, self._delivered = ages, delivered

    def collect(self) -> Iterator[Metric]:
        """Yield both families."""
        ages = GaugeMetricFamily(
            "reef_operator_watch_age_seconds", "For how long a watch has been silent.", labels=["kind"]
        )
        changes = CounterMetricFamily(
            "reef_operator_watch_changes", "Changes that a watch has delivered.", labels=["kind"]
        )
        for kind, age in self._ages().items():
            ages.add_metric([kind], age)
        for kind, count in self._delivered().items():
            changes.add_metric([kind], count)
        yield from (ages, changes)


class JobCollector(Collector):
    """Gauges of jobs, computed from their objects at every scrape, so that a deleted job leaves no series."""

    def __init__(self, jobs: Callable[[], Iterable[Object]], pods: Callable[[], Iterable[Object]]) -> None:
        self._jobs = jobs
        self._pods = pods

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        jobs = list(self._jobs())
        info = InfoMetricFamily("reef_job", "What the job is.", labels=JOB)
        phases = GaugeMetricFamily("reef_job_phase", "1 for the job's phase, 0 for all others.", labels=[*JOB, "phase"])
        gauges = {
            name: GaugeMetricFamily(f"reef_job_{name}", text, labels=JOB) for name, (_, _, text) in JOB_GAUGES.items()
        }
        for job in jobs:
            key, status = [job["metadata"].get("namespace", ""), job["metadata"]["name"]], job.get("status") or {}
            info.add_metric(key, describe(job))
            for phase in get_args(Phase):
                phases.add_metric([*key, phase], float(status.get("phase", "Pending") == phase))
            for name, (part, field, _) in JOB_GAUGES.items():
                value = number(status.get(part) if not field else (status.get(part) or {}).get(field))
                if value is not None:
                    gauges[name].add_metric(key, value)
        yield from (info, phases, *gauges.values(), self._restarts(), self._gpus())

    def _restarts(self) -> Metric:
        family = GaugeMetricFamily(
            "reef_job_container_restarts",
            "Restarts of containers in the job's current pods, by the reason of the last one.",
            labels=[*JOB, "component", "reason"],
        )
        sums: dict[tuple[str, str, str, str], float] = {}
        for pod in self._pods():
            component = (pod["metadata"].get("labels") or {}).get(COMPONENT_LABEL, "")
            for container in pod["status"].get("containerStatuses") or []:
                if container.get("restartCount"):
                    last = (container.get("lastState") or {}).get("terminated") or {}
                    labels = (*job_of_label(pod), component, last.get("reason") or "Unknown")
                    sums[labels] = sums.get(labels, 0) + container["restartCount"]
        for labels, count in sums.items():
            family.add_metric(labels, count)
        return family

    def _gpus(self) -> Metric:
        """GPUs by pod: the label `pod` separates jobs whose names start alike. Pods without GPUs have no series."""
        text, labels = "GPUs that a pod of the job holds.", [*JOB, "component", "pod"]
        family = GaugeMetricFamily("reef_job_pod_gpus", text, labels=labels)
        for pod in self._pods():
            if (count := gpus(pod)) and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                component = (pod["metadata"].get("labels") or {}).get(COMPONENT_LABEL, "")
                family.add_metric([*job_of_label(pod), component, pod["metadata"]["name"]], count)
        return family


def gpus(pod: Object) -> int:
    """Number of GPUs in the limits of a pod's containers."""
    limits = [(each.get("resources") or {}).get("limits") or {} for each in pod["spec"].get("containers") or []]
    found = [count for each in limits for name, count in each.items() if is_gpu(name)]
    return sum(int(count) for count in found if str(count).isdecimal())


def describe(job: Object) -> dict[str, str]:
    """Labels of reef_job_info."""
    spec = job.get("spec") or {}
    environment = spec.get("environment")
    name = environment.get("name", "") if isinstance(environment, Mapping) else ""
    return {
        "uid": job["metadata"].get("uid", ""),
        "algorithm": str(spec.get("algorithm", "")),
        "environment": str(name),
    }


def number(value: Any) -> float | None:
    """Return a field of the status as a gauge value: a time becomes seconds since 1970; None if it is not a number."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None
