"""Jobs by the hundred: created at once, failed, finished and deleted; and what was seen of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from installation import pool, small_job
from kube.cluster import Cluster
from kube.hollow import HollowNodes
from kube.progress import say, wait_until

from benchmarks.scale.heads import ITERATION_S
from benchmarks.scale.lags import (
    Change,
    known,
    progress_lags,
    reaction_lags,
    remade_lags,
    replacement_lags,
    status_lags,
    summary,
)
from benchmarks.scale.operator_process import OperatorProcess
from benchmarks.scale.watcher import CHILDREN, KINDS, Watcher

JOBS = KINDS["RLTrainingJob"]
SETTLED_S = 5.0
FAILURES_PER_S = 10.0
REACTIONS, REACTIONS_PER_S = 100, 1.0  # of each kind
AT_ONCE = 16
PER_OBJECT_LIMIT_S = 2.0  # for waits: far more than any target
STAY = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists"} for key in ("not-ready", "unreachable")]


def hollow_job(name: str, workers: int = 1) -> dict[str, Any]:
    """A job with a head and one pool, whose pods "run" on hollow nodes, also while those are late in saying so."""
    placed = {"nodeSelector": HollowNodes.SELECTOR, "tolerations": [HollowNodes.TOLERATION, *STAY]}
    return small_job(name, head=placed, workers=[pool(replicas=workers, **placed)])


class Load:
    """A number of jobs in one namespace.

    Args:
        cluster: with hollow nodes.
        namespace: of the jobs.
        nodes: that play the pods.
        watcher: of the namespace.
        operator: that is measured.
        jobs: how many.
        workers: pods of each job's pool.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        nodes: HollowNodes,
        watcher: Watcher,
        operator: OperatorProcess,
        *,
        jobs: int,
        workers: int = 1,
    ) -> None:
        self.names = [f"scale-{number:03d}" for number in range(jobs)]
        self.watcher = watcher
        self.operator = operator
        self._api = cluster.api
        self._namespace = namespace
        self._nodes = nodes
        self._workers = workers
        self._limit_s = 60 + PER_OBJECT_LIMIT_S * jobs

    def create(self, limit_s: float | None = None) -> tuple[dict[str, Any], list[Change]]:
        """Create all jobs at once and wait until they run; rates, and what was seen."""
        path = JOBS.format(self._namespace)
        bodies = [hollow_job(name, self._workers) for name in self.names]
        self.watcher.take()
        requests, cpu = self.operator.requests(), self.operator.cpu_s()
        begun = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool_of_writers:
            list(pool_of_writers.map(lambda body: self._api.request("POST", path, body, timeout_s=60), bodies))
        posted = time.monotonic()
        self._await("all jobs to run", lambda: self._are("Running") and self._all_ready(), limit_s)
        running = time.monotonic()
        changes = self.watcher.take()
        complete = last_complete(changes, self.names)
        return {
            "posted_s": posted - begun,
            "complete_s": complete - begun,
            "jobs_per_s": len(self.names) / (complete - begun),
            "running_s": running - begun,
            "operator_cpu_s": self.operator.cpu_s() - cpu,
            "requests": per_job(self.operator.requests() - requests, len(self.names)),
        }, changes

    def steady(self, seconds: float) -> dict[str, Any]:
        """Let all jobs train: how old their statuses get, and what that costs."""
        self.watcher.take()
        requests, cpu, begun = self.operator.requests(), self.operator.cpu_s(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - begun
        done = self.operator.requests() - requests
        return {
            "seconds": took,
            "progress_lag_s": summary(progress_lags(self.watcher.take(), ITERATION_S)),
            "operator_cpus": (self.operator.cpu_s() - cpu) / took,
            "requests_per_s": {verb: count / took for verb, count in done.items()},
        }

    def react(self, count: int) -> dict[str, Any]:
        """While all train, edit some jobs, suspend others and create new ones: how soon the operator acts on it."""
        path = JOBS.format(self._namespace)
        chosen = self.names[:: max(1, len(self.names) // (2 * count))]
        new = [f"{self.names[0]}-new-{number}" for number in range(count)]
        asked: dict[str, dict[str, tuple[float, int]]] = {"edit": {}, "suspension": {}, "new job": {}}

        def ask(what: str, name: str, spec: dict[str, Any] | None = None) -> None:
            moment, known_as = time.monotonic(), asked[what]
            if spec is None:
                found = self._api.request("POST", path, hollow_job(name, self._workers))
            else:
                found = self._api.request("PATCH", f"{path}/{name}", {"spec": spec}, kind="merge")
            known_as[name] = (moment, found["metadata"]["generation"])

        self.watcher.take()
        due = time.monotonic()
        for edited, suspended, created in zip(chosen[::2], chosen[1::2], new, strict=False):
            ask("edit", edited, {"replicas": self._workers + 1})
            ask("suspension", suspended, {"suspend": True})
            ask("new job", created)
            due += 1 / REACTIONS_PER_S
            time.sleep(max(0.0, due - time.monotonic()))
        time.sleep(SETTLED_S)
        changes = self.watcher.take()
        for name in asked["edit"] | asked["suspension"]:
            undone = {"replicas": None, "suspend": None}
            self._api.request("PATCH", f"{path}/{name}", {"spec": undone}, kind="merge")
        for name in asked["new job"]:
            self._api.request("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
        gone = set(new)
        self._await("the new jobs to go", lambda: not any(self.watcher.present(k, gone) for k in KINDS))
        self._await("all jobs to run as before", lambda: self._are("Running") and self._all_ready())
        found = {what: reaction_lags(changes, moments) for what, moments in asked.items()}
        return {what: summary(known(lags)) | {"missing": lags.count(None)} for what, lags in found.items()}

    def fail(self, share: float = 1 / 3) -> tuple[dict[str, Any], list[Change]]:
        """Of a part of the jobs fail a worker pod, then the head pod, then delete the pool's Deployment, at a pace."""
        victims = set(self.names[:: round(1 / share)])
        self.watcher.take()
        pods = self._pods(victims)
        for component in ("worker", "head"):
            self._paced(
                [pod for pod in pods if pod.facts["component"] == component],
                lambda pod: self._nodes.finish(self._namespace, pod.name, exit_code=1),
            )
            time.sleep(SETTLED_S)
        deployments = [each for each in self.watcher.present("Deployment") if each.job in victims]
        path = KINDS["Deployment"].format(self._namespace)
        self._paced(deployments, lambda each: self._api.request("DELETE", f"{path}/{each.name}"))
        time.sleep(SETTLED_S)
        self._await("all workers to be back", self._all_ready)
        changes = self.watcher.take()
        found = {
            "worker pod": replacement_lags(changes, "worker"),
            "head pod": replacement_lags(changes, "head"),
            "Deployment": remade_lags(changes, "Deployment"),
        }
        result = {what: summary(known(lags)) | {"missing": lags.count(None)} for what, lags in found.items()}
        return result, changes

    def finish(self) -> tuple[dict[str, Any], list[Change]]:
        """Let all heads end well at once, and wait until all jobs have succeeded and given their workers back."""
        self.watcher.take()
        requests = self.operator.requests()
        heads = [pod for pod in self._pods(set(self.names)) if pod.facts["component"] == "head"]
        begun = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool_of_writers:
            list(pool_of_writers.map(lambda pod: self._nodes.finish(self._namespace, pod.name), heads))
        self._await("all jobs to succeed", lambda: self._are("Succeeded"))
        succeeded = time.monotonic()
        self._await("all pools to go", lambda: not self.watcher.present("Deployment"))
        done = per_job(self.operator.requests() - requests, len(self.names))
        time.sleep(SETTLED_S)
        return {"succeeded_s": succeeded - begun, "requests": done}, self.watcher.take()

    def delete(self) -> float:
        """Delete all jobs and wait until nothing of them is left; the seconds that it took."""
        begun = time.monotonic()
        path, options = JOBS.format(self._namespace), {"propagationPolicy": "Background"}
        with ThreadPoolExecutor(AT_ONCE) as pool_of_writers:
            list(pool_of_writers.map(lambda name: self._api.request("DELETE", f"{path}/{name}", options), self.names))
        self._await("everything to be gone", lambda: not self.watcher.count())
        return time.monotonic() - begun

    def _await(self, what: str, holds: Callable[[], bool], limit_s: float | None = None) -> None:
        wait_until(what, holds, timeout_s=limit_s or self._limit_s, poll_s=0.25)

    def _are(self, phase: str) -> bool:
        phases = [change.facts["phase"] for change in self.watcher.present("RLTrainingJob")]
        return phases == [phase] * len(self.names)

    def _all_ready(self) -> bool:
        return all(change.facts["ready"] == self._workers for change in self.watcher.present("RLTrainingJob"))

    def _pods(self, jobs: set[str]) -> list[Change]:
        """Running pods, one of each part of each of these jobs."""
        pods = (pod for pod in self.watcher.present("Pod") if pod.job in jobs and pod.facts["ready"])
        return list({(pod.job, pod.facts["component"]): pod for pod in pods}.values())

    def _paced(self, victims: Iterable[Change], strike: Callable[[Change], Any]) -> None:
        due = time.monotonic()
        for victim in victims:
            time.sleep(max(0.0, due - time.monotonic()))
            due += 1 / FAILURES_PER_S
            strike(victim)


def last_complete(changes: list[Change], jobs: Iterable[str]) -> float:
    """When the last of the jobs had all its objects."""
    first: dict[tuple[str, str], float] = {}
    for change in changes:
        first.setdefault((change.job, change.kind), change.time)
    return max(first[job, kind] for job in jobs for kind in CHILDREN)


def per_job(requests: Counter[str], jobs: int) -> dict[str, float]:
    """Requests by verb, divided by the number of jobs."""
    return {verb: count / jobs for verb, count in sorted(requests.items())}


def measure(load: Load, rounds: int, steady_s: float) -> Iterator[dict[str, Any]]:
    """After every round yield all measurements so far, as they stand in results.json."""
    operator = load.operator
    result: dict[str, Any] = {"jobs": len(load.names), "memory_before_mb": operator.memory_mb(), "rounds": []}
    for number in range(1, rounds + 1):
        operator.reset_peak()
        made, changes = load.create()
        lags = status_lags(changes)
        say(f"round {number}: {made['jobs_per_s']:.1f} jobs/s, all run after {made['running_s']:.0f} s")
        if number == 1:
            result |= dict(_once(load, steady_s, lags))
        made["deleted_s"] = load.delete()
        time.sleep(SETTLED_S)
        made |= {
            "status_lag_s": summary(known(lags)) | {"missing": lags.count(None)},
            "peak_mb": operator.peak_mb(),
            "rest_mb": operator.memory_mb(),
            "load": os.getloadavg()[0],
        }
        say(f"round {number}: peak {made['peak_mb']:.0f} MB, then {made['rest_mb']:.0f} MB")
        result["rounds"].append(made)
        yield result


def reactions(load: Load) -> dict[str, Any]:
    """How soon the operator acts while so many jobs train, by their number."""
    made, _ = load.create()
    say(f"{len(load.names)} jobs: {made['jobs_per_s']:.1f} jobs/s, all run after {made['running_s']:.0f} s")
    found = load.react(REACTIONS)
    load.delete()
    return {str(len(load.names)): found}


def _once(load: Load, steady_s: float, lags: list[float | None]) -> Iterator[tuple[str, Any]]:
    """What is measured in one round alone, with all jobs running in the end finished; `lags` of making them."""
    yield "steady", load.steady(steady_s)
    yield "reactions", {str(len(load.names)): load.react(REACTIONS)}
    failures, failing = load.fail()
    yield "replaced_s", failures
    finished, finishing = load.finish()
    yield "finish", finished
    lags = lags + status_lags([*failing, *finishing])
    yield "status_lag_s", summary(known(lags)) | {"missing": lags.count(None)}
