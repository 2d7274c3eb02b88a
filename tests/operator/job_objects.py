"""Small factories of what an API server holds about one job, and a world in which plans are carried out."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reef_operator.builders.parts import Blueprint
from reef_operator.model import Create, Delete, IngressSettings, Observed, Patch, Plan, Progress, Server, Settings
from reef_operator.reading.situation import Situation
from reef_operator.reconcile import reconcile

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NAME, NAMESPACE, UID = "pole", "training", "job-uid"
TOKEN = "0123456789abcdef" * 4
CLAIM = {"storage": {"persistentVolumeClaim": {"claimName": "results"}}}
EXTERNAL = {"tokenSecretRef": {"name": "game"}, "from": [{"podSelector": {"matchLabels": {"app": "game"}}}]}
FROM_OUTSIDE = {"tokenSecretRef": {"name": "game"}, "ingress": {"host": "game.example.com"}}
CONTROLLER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
INGRESSES = Settings(ingress=IngressSettings(class_name="", annotations={}, controller=(CONTROLLER,)))


def at(seconds: float) -> str:
    """A timestamp so many seconds after NOW."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(*, status: Json | None = None, generation: int = 1, **spec: Any) -> Json:
    """An RLTrainingJob with one pool of two workers and durable storage; None leaves a field out."""
    fields = {
        "algorithm": "PPO",
        "environment": {"name": "CartPole-v1"},
        "stop": {"timesteps_total": 1000},
        "checkpoint": CLAIM,
        "workers": [pool()],
    } | spec
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": UID, "generation": generation, "creationTimestamp": at(-5)}
    document = {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": metadata,
        "spec": {key: value for key, value in fields.items() if value is not None},
    }
    return document | ({"status": status} if status else {})


def pool(name: str = "cpu", replicas: int = 2, **fields: Any) -> Json:
    return {"name": name, "replicas": replicas, **fields}


def observed(job: Json, *pods: Json, **fields: Any) -> Observed:
    return Observed(
        **{"job": job, "children": {}, "pods": pods, "progress": None, "now": NOW, "fresh_token": TOKEN} | fields
    )


def situation(job: Json, *pods: Json, **fields: Any) -> Situation:
    return Situation(observed(job, *pods, **fields))


def blueprint(*, settings: Settings | None = None, server: Server | None = None, **spec: Any) -> Blueprint:
    return Blueprint.of(situation(job(**spec), settings=settings or Settings(), server=server or Server()))


def pod(name: str, component: str, *, pool: str = "", node: str = "node-1", created: float = 0, **status: Any) -> Json:
    labels = {"reef.dev/job": NAME, "reef.dev/component": component} | ({"reef.dev/pool": pool} if pool else {})
    limits = {"resources": {"limits": {"memory": "1Gi"}}}
    return {
        "metadata": {"name": name, "uid": f"{name}-uid", "creationTimestamp": at(created), "labels": labels},
        "spec": {"containers": [{"name": "reef", **limits}]} | ({"nodeName": node} if node else {}),
        "status": {"phase": "Pending", **status},
    }


def head(name: str = "pole-head-a", **fields: Any) -> Json:
    return pod(name, "head", **fields)


def worker(name: str, pool_name: str = "cpu", **fields: Any) -> Json:
    return pod(name, "worker", pool=pool_name, **fields)


def waiting(reason: str, message: str = "", last: Json | None = None) -> Json:
    """Status of a pod whose container waits; `last` is how it ended before."""
    state = {"name": "reef", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "containerStatuses": [state | ({"lastState": {"terminated": last}} if last else {})]}


def ready(since: float = 0) -> Json:
    """Status of a pod that does its work."""
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": at(since)}
    return {
        "phase": "Running",
        "conditions": [condition],
        "containerStatuses": [{"name": "reef", "state": {"running": {}}}],
    }


def unschedulable(message: str = "0/3 nodes are available: 3 Insufficient cpu.") -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def gated(*gates: str) -> Json:
    """A head pod that the scheduler passes over."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
    made = head(node="", phase="Pending", conditions=[condition])
    made["spec"]["schedulingGates"] = [{"name": name} for name in gates]
    return made


def ended(code: int, message: str | Json = "", *, reason: str = "Error", finished: float = 0) -> Json:
    """Status of a pod that will not run again."""
    text = message if isinstance(message, str) else json.dumps({"exitCode": code, **message})
    how = {"exitCode": code, "reason": reason, "message": text, "finishedAt": at(finished)}
    state = {"name": "reef", "state": {"terminated": how}}
    return {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [state]}


def outlived(code: int, message: str | Json = "") -> Json:
    """Status of a pod whose training has ended beside a side car that goes on."""
    status = ready() | {"containerStatuses": ended(code, message)["containerStatuses"]}
    status["containerStatuses"].append({"name": "logs", "state": {"running": {}}})
    return status


def result(message: str = "", **fields: Any) -> Json:
    training = {"iteration": 7, "timesteps": 7000, "episodes": 70, "rewardMean": 450.0}
    return {"message": message, "training": training, "workersRecreated": 0} | fields


def merge(target: Json, patch: Json) -> Json:
    """A JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key, {}), value) if isinstance(value, dict) else copy.deepcopy(value)
    return target


@dataclass
class World:
    """An API server's content and a clock: plans are carried out at once, pods come and go by hand."""

    job: Json
    children: dict[tuple[str, str], Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    report: tuple[str, Json] | None = None  # uid of a head and what it says
    asked_since: datetime | None = NOW  # when heads that say nothing were first asked; None: not yet
    now: datetime = NOW
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    server: Server = field(default_factory=Server)
    settings: Settings = field(default_factory=Settings)
    made: int = 0
    told: list[str] = field(default_factory=list)  # reasons of Events

    @property
    def status(self) -> Json:
        return self.job.get("status", {})

    @property
    def phase(self) -> str:
        return str(self.status.get("phase"))

    def condition(self, kind: str) -> Json:
        return next((each for each in self.status.get("conditions", []) if each["type"] == kind), {})

    def kinds(self) -> list[str]:
        return sorted(f"{kind}/{name}" for kind, name in self.children)

    def observe(self, shuffle: random.Random | None = None) -> Observed:
        pods, children = list(self.pods.values()), list(self.children.items())
        if shuffle:
            shuffle.shuffle(pods)
            shuffle.shuffle(children)
        progress = self._asked_in_vain() if self.report is None else None
        if self.report is not None:
            progress = Progress(pod_uid=self.report[0], time=self.now, report=self.report[1])
        return copy.deepcopy(
            Observed(
                job=self.job,
                children=dict(children),
                pods=tuple(pods),
                progress=progress,
                now=self.now,
                fresh_token=TOKEN,
                refused=self.refused,
                server=self.server,
                settings=self.settings,
            )
        )

    def _asked_in_vain(self) -> Progress | None:
        heads = Situation(observed(self.job, *self.pods.values())).heads
        uid = heads[-1]["metadata"]["uid"] if heads else ""
        return Progress(pod_uid=uid, time=self.asked_since, report=None) if self.asked_since else None

    def step(self) -> Plan:
        """One look, carried out."""
        plan = reconcile(Situation(self.observe()))
        for action in plan.actions:
            self._do(action)
        if plan.status is not None and self.job:
            self.job["status"] = json.loads(json.dumps(plan.status))
        self.told += [event.reason for event in plan.events]
        return plan

    def settle(self) -> Plan:
        """Looks until nothing is left to be done; the last plan is returned."""
        for _ in range(10):
            plan = self.step()
            if not self.job or (not plan.actions and plan.status is None):
                assert not plan.events
                return plan
        raise AssertionError(f"does not come to rest: {plan}")

    def after(self, seconds: float) -> Plan:
        self.now += timedelta(seconds=seconds)
        return self.settle()

    def put(self, *pods: Json) -> Plan:
        for each in pods:
            self.pods[each["metadata"]["name"]] = each
        return self.settle()

    def lose(self, *pods: str) -> Plan:
        """Pods go; so does the batch Job that was deleted and waited for them."""
        for name in pods:
            del self.pods[name]
        heads = [each for each in self.pods.values() if each["metadata"]["labels"]["reef.dev/component"] == "head"]
        for key, child in list(self.children.items()):
            if key[0] == "Job" and not heads and "deletionTimestamp" in child["metadata"]:
                del self.children[key]
        return self.settle()

    def says(self, head: str, state: str, **fields: Any) -> Plan:
        self.report = (f"{head}-uid", {"state": state, **fields})
        return self.settle()

    def edit(self, **spec: Any) -> Plan:
        self.job["spec"].update(spec)
        self.job["metadata"]["generation"] += 1
        return self.settle()

    def batch(self, kind: str, reason: str = "") -> Plan:
        """Kubernetes decides the head's batch Job."""
        condition = {"type": kind, "status": "True", "reason": reason}
        self.children["Job", f"{NAME}-head"].setdefault("status", {})["conditions"] = [condition]
        return self.settle()

    def _do(self, action: Create | Patch | Delete) -> None:
        if isinstance(action, Create):
            key = (action.kind, action.name)
            assert key not in self.children, f"{key} is made twice"
            body = json.loads(json.dumps(action.body))
            self.made += 1
            body["metadata"] |= {"uid": f"uid-{self.made}", "creationTimestamp": self.now.isoformat()}
            self.children[key] = body
        elif isinstance(action, Patch):
            merge(self.children[action.kind, action.name], dict(action.body))
        elif action.kind == "Pod":
            assert self.pods[action.name]["metadata"]["uid"] == action.uid
            self.pods[action.name]["metadata"]["deletionTimestamp"] = (self.now + timedelta(seconds=30)).isoformat()
        elif action.kind == "RLTrainingJob":
            assert action.uid == UID
            self.job, self.children = {}, {}
        else:
            child = self.children[action.kind, action.name]
            assert child["metadata"]["uid"] == action.uid
            label = "reef.dev/component" if action.kind == "Job" else "reef.dev/pool"
            value = "head" if action.kind == "Job" else action.name.removeprefix(f"{NAME}-")
            owned = [each for each in self.pods.values() if each["metadata"]["labels"].get(label) == value]
            grace = timedelta(seconds=child["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30))
            for each in owned:
                each["metadata"]["deletionTimestamp"] = (self.now + grace).isoformat()
            if action.kind == "Job" and owned:
                child["metadata"]["deletionTimestamp"] = self.now.isoformat()
            else:
                del self.children[action.kind, action.name]


def running_world(**spec: Any) -> World:
    """A job that trains with both of its workers."""
    world = World(job(**spec))
    world.settle()
    world.put(head(**ready()))
    world.put(worker("pole-cpu-1", **ready()), worker("pole-cpu-2", **ready()))
    world.says("pole-head-a", "training", training={"iteration": 1, "timesteps": 100})
    assert world.phase == "Running"
    return world
