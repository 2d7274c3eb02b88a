"""The controller against a real HTTP server: order of what is done, what is verified, and what a refusal changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest
from aiohttp import web
from job_objects import EXTERNAL, FROM_OUTSIDE, INGRESSES

from reef_operator.builders.merging import compact, merge_patch
from reef_operator.connection.client import ApiError
from reef_operator.model import Create, Delete, Event, Freshness, Observed, Patch, Plan, Server, Settings
from reef_operator.reading.document import Resolved
from reef_operator.reading.situation import Situation
from reef_operator.runtime.controller import Controller
from reef_operator.runtime.event_recorder import EventRecorder
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.observer import FEW_PODS, Observer
from reef_operator.runtime.queue import WorkQueue
from reef_operator.runtime.watch import Store, Stores, job_of_label, key_of, trim_job

KEY = ("ns", "j")
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
EVENTS = "/api/v1/namespaces/ns/events"
HEADS = "/apis/batch/v1/namespaces/ns/jobs"
PODS = "/api/v1/namespaces/ns/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ns/deployments"
STATUS = "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs/j/status"
JOB = "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs/j"


def job(version: int = 5, **status):
    metadata = {
        "namespace": "ns",
        "name": "j",
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-02T00:00:00Z",
    }
    return {"kind": "RLTrainingJob", "metadata": metadata, "spec": {}, "status": status}


def child(kind: str, name: str, *, owner: str = "u", owner_kind: str = "RLTrainingJob"):
    owners = [{"kind": owner_kind, "uid": owner}] if owner else []
    metadata = {
        "namespace": "ns",
        "name": name,
        "uid": f"u-{name}",
        "labels": {"reef.dev/job": "j"},
        "ownerReferences": owners,
    }
    return {"kind": kind, "metadata": metadata}


class Bench:
    """A controller whose decisions are scripted, one plan after the other; the last one again and again."""

    def __init__(self, rig, *plans: Plan, found=None, reread_s: float = 240.0, settings=None) -> None:
        self.plans = list(plans)
        self.observed: list[Observed] = []
        self.resolved: list[Resolved] = []
        self.queue = WorkQueue()
        owned = {kind: Store(job_of_label) for kind in ("Job", "Deployment")}
        self.stores = Stores(jobs=Store(key_of), pods=Store(job_of_label), owned=owned)
        self.stores.jobs.put(found or job())
        rig.server.unless_scripted("GET", JOB, found or job())
        self.written = []
        self.metrics = Metrics()
        self.observer = Observer(rig.client, self.stores, lambda key: None, settings or Settings(), reread_s=reread_s)
        self.controller = Controller(
            rig.client,
            self.stores,
            self.observer,
            decide=self._decide,
            queue=self.queue,
            recorder=EventRecorder(rig.client),
            metrics=self.metrics,
            written=self.written.append,
        )

    def _decide(self, situation: Situation) -> Plan:
        self.observed.append(situation.observed)
        self.resolved.append(situation.resolved)
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]

    async def handle(self) -> None:
        await self.controller.handle(KEY)


def done(rig) -> list[tuple[str, str]]:
    return [(each.method, each.path) for each in rig.server.requests]


def test_actions_come_in_order_then_the_status_once_then_events(rig):
    async def test(rig) -> None:
        head = child("Job", "j-head")
        rig.server.on("GET", JOB, job())
        rig.server.on("POST", CONFIG_MAPS, child("ConfigMap", "j-job"), status=201)
        rig.server.on("POST", HEADS, head, status=201)
        rig.server.on("PATCH", f"{DEPLOYMENTS}/j-cpu", child("Deployment", "j-cpu"))
        rig.server.on("PATCH", STATUS, job(6, phase="Provisioning"))
        rig.server.on("POST", EVENTS, {}, status=201)
        plan = Plan(
            actions=(
                Create(child("ConfigMap", "j-job")),
                Create(head),
                Patch("Deployment", "j-cpu", {"spec": {"replicas": 3}}),
            ),
            status={"phase": "Provisioning", "message": None},
            events=(Event(type="Normal", reason="Created", message="it begins"),),
            requeue_after_s=0.01,
        )
        bench = Bench(rig, plan)
        bench.stores.owned["Deployment"].put(child("Deployment", "j-cpu"))
        await bench.handle()
        writes = [each for each in rig.server.requests if each.method != "GET"]
        assert [(each.method, each.path) for each in writes] == [
            ("POST", CONFIG_MAPS),
            ("POST", HEADS),
            ("PATCH", f"{DEPLOYMENTS}/j-cpu"),
            ("PATCH", STATUS),
            ("POST", EVENTS),
        ]
        assert writes[2].body == {"spec": {"replicas": 3}, "metadata": {"uid": "u-j-cpu"}}
        expected = {"metadata": {"uid": "u", "resourceVersion": "5"}, "status": {"phase": "Provisioning"}}
        assert writes[3].body == expected
        assert bench.stores.jobs.get(KEY)["status"] == {"phase": "Provisioning"}
        assert [each["metadata"]["resourceVersion"] for each in bench.written] == ["6"]
        assert await bench.queue.get() == KEY  # after requeue_after_s

    rig(test)


def test_what_was_made_is_known_at_once(rig):
    async def test(rig) -> None:
        rig.server.on("POST", CONFIG_MAPS, child("ConfigMap", "j-job"), status=201)
        rig.server.on("POST", HEADS, child("Job", "j-head"), status=201)
        made = (Create(child("ConfigMap", "j-job")), Create(child("Job", "j-head")))
        both = Plan(actions=made, freshness=Freshness.JOB_READ)
        bench = Bench(rig, both, Plan())
        await bench.handle()
        await bench.handle()
        assert set(bench.observed[0].children) == set()
        assert set(bench.observed[1].children) == {("ConfigMap", "j-job"), ("Job", "j-head")}
        reads = [path for method, path in done(rig) if method == "GET"]
        assert reads == [JOB]  # the children of a new job are not

    rig(test)


def test_a_status_that_is_right_is_not_written(rig):
    async def test(rig) -> None:
        bench = Bench(rig, Plan(status={"phase": "Running"}), found=job(phase="Running"))
        for name in ("configmaps/j-job", "secrets/j-ray-token", "services/j-head"):
            rig.server.on("GET", f"/api/v1/namespaces/ns/{name}", child("X", "x"))
        await bench.handle()
        await bench.handle()
        assert rig.server.asked("PATCH") == []
        assert len(rig.server.asked("GET")) == 4  # read once, for a job that was taken up before

    rig(test)


@pytest.mark.parametrize(("phase", "reads"), [("Running", 8), ("Succeeded", 4)])
def test_what_is_not_watched_is_read_again_until_the_job_has_ended(rig, phase, reads):
    async def test(rig) -> None:
        bench = Bench(rig, Plan(), found=job(phase=phase), reread_s=1.0)
        await bench.handle()
        await bench.handle()
        assert len(rig.server.asked("GET")) == 4
        await asyncio.sleep(1.1)
        await bench.handle()
        assert len(rig.server.asked("GET")) == reads

    rig(test)


BASE = ["configmaps/j-job", "secrets/j-ray-token", "services/j-head", "networkpolicies/j"]


@pytest.mark.parametrize(
    ("stored", "asked", "settings", "more"),
    [
        ({}, {}, INGRESSES, []),
        (EXTERNAL, EXTERNAL, INGRESSES, ["services/j-policy"]),
        (FROM_OUTSIDE, FROM_OUTSIDE, INGRESSES, ["services/j-policy", "ingresses/j-policy"]),
        (FROM_OUTSIDE, FROM_OUTSIDE, Settings(), ["services/j-policy"]),  # without the right to read Ingresses
        (EXTERNAL, {}, INGRESSES, ["services/j-policy"]),  # an edit that has no effect
        ({}, EXTERNAL, INGRESSES, []),
        (None, EXTERNAL, INGRESSES, ["services/j-policy"]),  # its ConfigMap is missing
        (None, "nonsense", INGRESSES, ["services/j-policy"]),
    ],
)
def test_only_a_job_with_a_policy_server_costs_the_reads_of_its_objects(rig, stored, asked, settings, more):
    async def test(rig) -> None:
        if stored is not None:
            document = {"spec": {"externalInput": stored} if stored else {}}
            config_map = child("ConfigMap", "j-job") | {"data": {"job.json": json.dumps(document)}}
            rig.server.on("GET", f"{CONFIG_MAPS}/j-job", config_map)
        for name in more:
            group = "/apis/networking.k8s.io/v1" if name.startswith("ingresses") else "/api/v1"
            kind = "Ingress" if name.startswith("ingresses") else "Service"
            rig.server.on("GET", f"{group}/namespaces/ns/{name}", child(kind, "j-policy"))
        found = job(phase="Running") | {"spec": {"externalInput": asked} if asked else {}}
        bench = Bench(rig, Plan(), found=found, settings=settings)
        await bench.handle()
        assert ["/".join(path.split("/")[-2:]) for _, path in done(rig)] == BASE + more
        known = {f"{kind}/{name}" for kind, name in bench.observed[0].children} - {"ConfigMap/j-job"}
        assert len(known) == len(more)

    rig(test)


def test_of_a_job_that_has_ended_the_document_is_read_when_something_may_be_to_do(rig):
    """Its state and a hash are kept: a look at thousands of them costs nothing."""

    async def test(rig) -> None:
        ended = job(7, phase="Succeeded") | {"spec": {"algorithm": "PPO", "config": {"lr": 1}}}
        rig.server.on("GET", JOB, ended, ended, ended, job(8, phase="Succeeded"))
        bench = Bench(rig, Plan(requeue_after_s=60), Plan(requeue_after_s=0.2), Plan(), found=trim_job(ended))

        async def reads() -> int:
            before = len(rig.server.asked("GET"))
            await bench.handle()
            return len(rig.server.asked("GET")) - before

        assert await reads() == 5
        assert bench.observed[0].job["spec"] == ended["spec"]
        assert bench.stores.jobs.get(KEY)["spec"] == {"algorithm": "PPO"}, "it is not kept"
        assert await reads() == 0
        bench.stores.owned["Job"].put(child("Job", "j-head"))
        assert await reads() == 5, "something beside it has changed"
        assert await reads() == 0
        await asyncio.sleep(0.25)
        assert await reads() == 5, "its time has come"
        bench.stores.jobs.put(trim_job(job(8, phase="Succeeded")))
        assert await reads() == 5, "it has changed"
        assert await reads() == 0
        assert len(bench.observed) == 4

    rig(test)


def test_the_decision_knows_what_the_server_can_do_now(rig):
    async def test(rig) -> None:
        bench = Bench(rig, Plan())
        bench.observer.renew(Server(minor=30))
        await bench.handle()
        assert bench.observed[0].server.pod_failure_policy

    rig(test)


def test_fields_that_are_gone_are_removed_from_the_status(rig):
    async def test(rig) -> None:
        rig.server.on("PATCH", STATUS, job(6))
        found = job(phase="Retrying", training={"iteration": 3, "rewardMean": 1.0}, evaluation={"iteration": 1})
        bench = Bench(rig, Plan(status={"phase": "Running", "training": {"iteration": 4}}), found=found)
        await bench.handle()
        (written,) = rig.server.asked("PATCH")
        change = {"phase": "Running", "training": {"iteration": 4, "rewardMean": None}, "evaluation": None}
        assert written.body["status"] == change

    rig(test)


def test_a_job_that_changed_meanwhile_is_read_and_looked_at_again_without_events(rig):
    async def test(rig) -> None:
        rig.server.on("PATCH", STATUS, {"reason": "Conflict"}, status=409)
        rig.server.on("GET", JOB, job(9))
        plan = Plan(status={"phase": "Running"}, events=(Event(type="Normal", reason="Running", message="m"),))
        bench = Bench(rig, plan)
        await bench.handle()
        assert bench.stores.jobs.get(KEY)["metadata"]["resourceVersion"] == "9"
        assert bench.queue.depth() == 1
        assert rig.server.asked("POST") == []

    rig(test)


def test_a_status_whose_answer_was_lost_is_told_by_its_events(rig):
    """The request is sent again, and then meets the version that it made itself."""

    async def test(rig) -> None:
        rig.server.on("PATCH", STATUS, {"reason": "Conflict"}, status=409)
        rig.server.on("GET", JOB, job(9, phase="Running"))
        plan = Plan(status={"phase": "Running"}, events=(Event(type="Normal", reason="Running", message="m"),))
        await Bench(rig, plan).handle()
        assert [each.body["reason"] for each in rig.server.asked("POST", "events")] == ["Running"]

    rig(test)


def test_after_a_refusal_nothing_more_is_made_but_things_are_removed_and_the_status_is_written(rig):
    async def test(rig) -> None:
        rig.server.on("POST", HEADS, {"reason": "Forbidden", "message": "exceeded quota"}, status=403)
        rig.server.on("DELETE", f"{DEPLOYMENTS}/j-old", {})
        rig.server.on("PATCH", STATUS, job(6, phase="Pending"))
        rig.server.on("GET", JOB, job())
        for path in (HEADS, DEPLOYMENTS, "/api/v1/namespaces/ns/pods"):
            rig.server.on("GET", path, {"items": []})
        plan = Plan(
            actions=(
                Create(child("Job", "j-head")),
                Create(child("Deployment", "j-cpu")),
                Delete("Deployment", "j-old", "u9"),
            ),
            status={"phase": "Pending"},
            freshness=Freshness.ALL_READ,
        )
        bench = Bench(rig, plan)
        with pytest.raises(ApiError, match="exceeded quota"):
            await bench.handle()
        writes = [each for each in done(rig) if each[0] != "GET"]
        assert writes == [("POST", HEADS), ("DELETE", f"{DEPLOYMENTS}/j-old"), ("PATCH", STATUS)]
        assert bench.queue.depth() == 1  # to tell the owner
        with contextlib.suppress(ApiError):
            await bench.handle()
        assert bench.observed[-1].refused == {("Job", "j-head"): "exceeded quota"}
        rig.server.on("POST", HEADS, child("Job", "j-head"), status=201)
        rig.server.on("POST", DEPLOYMENTS, child("Deployment", "j-cpu"), status=201)
        for _ in range(3):  # refused once more, made, seen
            with contextlib.suppress(ApiError):
                await bench.handle()
        assert bench.observed[-1].refused == {}

    rig(test)


def test_a_refusal_is_looked_at_again_at_once_when_it_is_new_not_when_its_words_are(rig):
    async def test(rig) -> None:
        for used in (1, 2):
            rig.server.on("POST", HEADS, {"reason": "Forbidden", "message": f"quota: {used} used"}, status=403)
        bench = Bench(rig, Plan(actions=(Create(child("Job", "j-head")),)))
        with pytest.raises(ApiError):
            await bench.handle()
        assert await bench.queue.get() == KEY
        bench.queue.done(KEY)
        with pytest.raises(ApiError, match="2 used"):
            await bench.handle()
        assert bench.queue.depth() == 0

    rig(test)


def test_a_refusal_of_what_is_not_wanted_any_more_is_forgotten(rig):
    async def test(rig) -> None:
        rig.server.on("POST", DEPLOYMENTS, {"reason": "Forbidden", "message": "exceeded quota"}, status=403)
        bench = Bench(rig, Plan(actions=(Create(child("Deployment", "j-cpu")),)), Plan())
        with pytest.raises(ApiError):
            await bench.handle()
        await bench.handle()
        assert bench.observed[-1].refused == {("Deployment", "j-cpu"): "exceeded quota"}
        assert bench.queue.depth() == 1
        await bench.handle()
        assert bench.observed[-1].refused == {}

    rig(test)


def test_an_object_of_someone_else_is_left_alone_and_told(rig):
    async def test(rig) -> None:
        rig.server.on("POST", CONFIG_MAPS, {"reason": "AlreadyExists"}, status=409)
        rig.server.on("GET", f"{CONFIG_MAPS}/j-job", child("ConfigMap", "j-job", owner=""))
        bench = Bench(rig, Plan(actions=(Create(child("ConfigMap", "j-job")),)))
        with pytest.raises(ApiError, match="does not belong to this job"):
            await bench.handle()
        assert rig.server.asked("PATCH") == []
        with contextlib.suppress(ApiError):
            await bench.handle()
        assert set(bench.observed[-1].refused) == {("ConfigMap", "j-job")}

    rig(test)


def test_what_an_earlier_job_left_is_waited_for_silently(rig):
    async def test(rig) -> None:
        rig.server.on("POST", CONFIG_MAPS, {"reason": "AlreadyExists"}, status=409)
        rig.server.on("GET", f"{CONFIG_MAPS}/j-job", child("ConfigMap", "j-job", owner="before"))
        bench = Bench(rig, Plan(actions=(Create(child("ConfigMap", "j-job")),)))
        for _ in range(2):
            with pytest.raises(ApiError, match="earlier job"):
                await bench.handle()
        assert bench.observed[-1].refused == {}

    rig(test)


@pytest.mark.parametrize(
    ("status", "refused"),
    [(404, False), (409, False), (429, False), (503, False), (403, True), (422, True), (500, True)],
)
def test_an_object_that_was_just_replaced_and_a_busy_server_are_no_refusal(rig, status, refused):
    async def test(rig) -> None:
        answer = {"reason": "Any", "message": "the server's words"}
        rig.server.on("PATCH", f"{DEPLOYMENTS}/j-cpu", answer, status=status, headers={"Retry-After": "0"})
        rig.server.on("GET", JOB, job())
        bench = Bench(rig, Plan(actions=(Patch("Deployment", "j-cpu", {"spec": {"replicas": 3}}),)))
        for _ in range(2):
            with pytest.raises(ApiError, match="the server's words"):
                await bench.handle()
        assert bench.observed[-1].refused == ({("Deployment", "j-cpu"): "the server's words"} if refused else {})
        assert bench.queue.depth() == refused

    rig(test)


def test_a_server_that_is_too_busy_to_make_an_object_has_not_refused_it(rig):
    async def test(rig) -> None:
        rig.server.on("POST", HEADS, {"message": "too many requests"}, status=429, headers={"Retry-After": "0"})
        bench = Bench(rig, Plan(actions=(Create(child("Job", "j-head")),)))
        for _ in range(2):
            with pytest.raises(ApiError, match="too many requests"):
                await bench.handle()
        assert bench.observed[-1].refused == {}

    rig(test)


def test_a_conflict_about_a_quota_is_told_and_tried_again(rig):
    """It is no sign that the object exists: others use up the quota at the same time."""

    async def test(rig) -> None:
        conflict = {"reason": "Conflict", "message": 'cannot be fulfilled on resourcequotas "q"'}
        rig.server.on("POST", HEADS, conflict, status=409)
        rig.server.on("POST", HEADS, child("Job", "j-head"), status=201)
        plan = Plan(actions=(Create(child("Job", "j-head")),))
        bench = Bench(rig, plan, plan, Plan())
        with pytest.raises(ApiError, match="resourcequotas"):
            await bench.handle()
        assert ("GET", f"{HEADS}/j-head") not in done(rig)
        await bench.handle()
        assert bench.observed[1].refused == {("Job", "j-head"): 'cannot be fulfilled on resourcequotas "q"'}
        await bench.handle()
        assert bench.observed[-1].refused == {}
        assert ("Job", "j-head") in bench.observed[-1].children

    rig(test)


def test_our_own_object_that_is_going_is_waited_for(rig):
    async def test(rig) -> None:
        going = child("ConfigMap", "j-job")
        going["metadata"]["deletionTimestamp"] = "2026-01-03T00:00:00Z"
        rig.server.on("POST", CONFIG_MAPS, {"reason": "AlreadyExists"}, status=409)
        rig.server.on("GET", f"{CONFIG_MAPS}/j-job", going)
        bench = Bench(rig, Plan(actions=(Create(child("ConfigMap", "j-job")),)))
        for _ in range(2):
            with pytest.raises(ApiError, match="is being deleted"):
                await bench.handle()
        assert (bench.observed[-1].children, bench.observed[-1].refused) == ({}, {})

    rig(test)


def test_our_own_object_of_before_is_taken_up(rig):
    async def test(rig) -> None:
        rig.server.on("POST", CONFIG_MAPS, {"reason": "AlreadyExists"}, status=409)
        rig.server.on("GET", f"{CONFIG_MAPS}/j-job", child("ConfigMap", "j-job"))
        bench = Bench(rig, Plan(actions=(Create(child("ConfigMap", "j-job")),)), Plan())
        await bench.handle()
        assert bench.queue.depth() == 1
        await bench.handle()
        assert set(bench.observed[-1].children) == {("ConfigMap", "j-job")}

    rig(test)


def pod_of_job(name: str, phase: str = "Running"):
    metadata = {"namespace": "ns", "name": name, "uid": name, "labels": {"reef.dev/job": "j"}}
    return {"metadata": metadata, "status": {"phase": phase}}


@pytest.mark.parametrize(
    "plan",
    [
        Plan(actions=(Delete("Deployment", "j-cpu", "u1"),), freshness=Freshness.ALL_READ),
        Plan(status={"phase": "Failed"}, freshness=Freshness.ALL_READ),
    ],
    ids=["actions", "status"],
)
@pytest.mark.parametrize("pods", [2, FEW_PODS + 1])
def test_a_plan_that_needs_everything_as_it_is_now_is_made_again_from_what_is_read(rig, plan, pods):
    async def test(rig) -> None:
        rig.server.on("GET", JOB, job(8, phase="Running"))
        bench = Bench(rig, plan, Plan())
        for name in ("j-head", "j-cpu"):
            kind = "Job" if name == "j-head" else "Deployment"
            bench.stores.owned[kind].put(child(kind, name))
        for number in range(pods):
            bench.stores.pods.put(pod_of_job(f"p{number}"))
            rig.server.on("GET", f"{PODS}/p{number}", pod_of_job(f"p{number}", "Failed"))
        rig.server.on("GET", PODS, {"items": [pod_of_job(f"p{number}", "Failed") for number in range(pods)]})
        rig.server.on("GET", f"{HEADS}/j-head", child("Job", "j-head"))  # the Deployment has gone
        await bench.handle()
        assert set(bench.observed[0].children) - set(bench.observed[1].children) == {("Deployment", "j-cpu")}
        assert {pod["status"]["phase"] for pod in bench.observed[0].pods} == {"Running"}
        assert [pod["status"]["phase"] for pod in bench.observed[1].pods] == ["Failed"] * pods
        assert bench.observed[1].job["metadata"]["resourceVersion"] == "8"
        lists = [path for _, path in done(rig) if path in (HEADS, DEPLOYMENTS, PODS)]
        assert lists == [PODS] * (pods > FEW_PODS), "a list reads those of all"
        assert [each for each in done(rig) if each[0] != "GET"] == []

    rig(test)


def test_before_a_change_the_job_itself_is_looked_at(rig):
    """The watch of jobs may be behind that of Deployments: then a pool looks as if someone else had scaled it."""

    async def test(rig) -> None:
        rig.server.on("GET", JOB, job(8))
        patch = Patch("Deployment", "j-cpu", {"spec": {"replicas": 1}})
        bench = Bench(rig, Plan(actions=(patch,), freshness=Freshness.JOB_READ), Plan())
        await bench.handle()
        versions = [each.job["metadata"]["resourceVersion"] for each in bench.observed]
        assert versions == ["5", "8"]
        assert done(rig) == [("GET", JOB)]  # the second plan counts

    rig(test)


@pytest.mark.parametrize("now", [None, job(9) | {"metadata": job(9)["metadata"] | {"uid": "another"}}], ids=str)
def test_a_deleted_job_is_not_made_again_while_its_event_is_late(rig, now):
    async def test(rig) -> None:
        rig.server.on("GET", JOB, now or {"reason": "NotFound"}, status=200 if now else 404)
        rig.server.on("POST", CONFIG_MAPS, child("ConfigMap", "j-job"), status=201)
        rig.server.on("POST", HEADS, child("Job", "j-head"), status=201)
        made = (Create(child("ConfigMap", "j-job")), Create(child("Job", "j-head")))
        await Bench(rig, Plan(actions=made, status={"phase": "Pending"}, freshness=Freshness.JOB_READ)).handle()
        assert done(rig) == [("GET", JOB)], "one look for all that is made"

    rig(test)


@pytest.mark.parametrize(("spec", "same"), [({}, True), ({"algorithm": "PPO"}, False)], ids=["same", "edited"])
def test_in_one_look_a_document_is_read_again_only_if_it_has_changed(rig, spec, same):
    async def test(rig) -> None:
        rig.server.on("GET", JOB, job(8) | {"spec": spec}, job(9) | {"spec": spec})
        bench = Bench(rig, Plan(freshness=Freshness.JOB_READ), Plan(freshness=Freshness.ALL_READ), Plan())
        await bench.handle()
        assert [each.job["metadata"]["resourceVersion"] for each in bench.observed] == ["5", "8", "9"]
        assert (bench.resolved[1] is bench.resolved[0]) is same
        assert bench.resolved[2] is bench.resolved[1]

    rig(test)


def test_one_look_at_the_job_does_for_a_change_and_an_end_that_are_known_at_once(rig):
    async def test(rig) -> None:
        rig.server.on("GET", JOB, job(8))
        rig.server.on("GET", HEADS, {"items": []})
        patch = Patch("Deployment", "j-cpu", {"spec": {"replicas": 1}})
        for plans, looks in (
            ([Plan(actions=(patch,), status={"phase": "Failed"}, freshness=Freshness.ALL_READ)], 1),
            (
                [
                    Plan(actions=(patch,), freshness=Freshness.JOB_READ),
                    Plan(status={"phase": "Failed"}, freshness=Freshness.ALL_READ),
                ],
                2,
            ),
        ):
            before = len(done(rig))
            bench = Bench(rig, *plans, Plan())
            await bench.handle()
            assert done(rig)[before:].count(("GET", JOB)) == looks
            assert len(bench.observed) == len(plans) + 1

    rig(test)


def test_a_job_and_what_it_has_are_asked_for_at_the_same_time(rig):
    async def test(rig) -> None:
        asked = {JOB: asyncio.Event(), f"{HEADS}/j-head": asyncio.Event(), f"{PODS}/p": asyncio.Event()}
        answers = {JOB: job(8), f"{HEADS}/j-head": child("Job", "j-head"), f"{PODS}/p": child("Pod", "p")}

        async def once_all_are_asked_for(_, request) -> web.Response:
            asked[request.path].set()
            await asyncio.gather(*(each.wait() for each in asked.values()))
            return web.json_response(answers[request.path])

        for path in asked:
            rig.server.on("GET", path, once_all_are_asked_for)
        bench = Bench(rig, Plan(status={"phase": "Failed"}, freshness=Freshness.ALL_READ), Plan())
        bench.stores.owned["Job"].put(child("Job", "j-head"))
        bench.stores.pods.put(child("Pod", "p"))
        await bench.handle()
        assert [each.job["metadata"]["resourceVersion"] for each in bench.observed] == ["5", "8"]

    rig(test)


def test_a_plan_that_may_rest_on_caches_is_carried_out_without_another_look(rig):
    async def test(rig) -> None:
        delete = Delete("Deployment", "j-cpu", "u1")
        rig.server.on("DELETE", f"{DEPLOYMENTS}/j-cpu", {})
        rig.server.on("PATCH", STATUS, job(8, phase="Succeeded"))
        await Bench(rig, Plan(actions=(delete,), status={"phase": "Succeeded"})).handle()
        assert done(rig)[-2:] == [("DELETE", f"{DEPLOYMENTS}/j-cpu"), ("PATCH", STATUS)]
        assert ("GET", JOB) not in done(rig)

    rig(test)


def test_foreign_children_and_pods_of_an_earlier_job_are_not_seen(rig):
    async def test(rig) -> None:
        bench = Bench(rig, Plan())
        bench.stores.owned["Job"].put(child("Job", "j-head", owner="before"))
        for name, made in (("old", "2026-01-01T23:59:59Z"), ("new", "2026-01-02T00:00:00Z")):
            labels = {"reef.dev/job": "j"}
            metadata = {"namespace": "ns", "name": name, "uid": name, "labels": labels, "creationTimestamp": made}
            bench.stores.pods.put({"metadata": metadata, "status": {}})
        await bench.handle()
        (observed,) = bench.observed
        assert observed.children == {}
        assert [pod["metadata"]["name"] for pod in observed.pods] == ["new"]
        assert len(observed.fresh_token) == 64

    rig(test)


def test_a_head_is_seen_though_the_clock_of_the_server_that_made_it_is_behind(rig):
    async def test(rig) -> None:
        bench = Bench(rig, Plan())
        batch_job = child("Job", "j-head")
        bench.stores.owned["Job"].put(batch_job)
        owner = {"kind": "Job", "uid": batch_job["metadata"]["uid"]}
        labels, made = {"reef.dev/job": "j"}, "2026-01-01T23:59:58Z"
        metadata = {"namespace": "ns", "name": "head", "uid": "h", "labels": labels, "creationTimestamp": made}
        bench.stores.pods.put({"metadata": metadata | {"ownerReferences": [owner]}, "status": {}})
        await bench.handle()
        assert [pod["metadata"]["name"] for pod in bench.observed[0].pods] == ["head"]

    rig(test)


def test_a_job_that_has_ended_rests_until_its_time_however_early_it_is_looked_at(rig):
    async def test(rig) -> None:
        ended = trim_job(job(5, phase="Succeeded"))
        bench = Bench(rig, Plan(requeue_after_s=0.3), Plan(), found=ended)
        await bench.handle()
        for _ in range(2):  # the second time comes from the pause of the first, a moment too early
            bench.queue._timers[KEY].cancel()
            bench.queue._elapsed(KEY)
            assert await bench.queue.get() == KEY
            await bench.handle()
            bench.queue.done(KEY)
        assert len(bench.observed) == 1, "nothing has changed"
        assert await asyncio.wait_for(bench.queue.get(), 5) == KEY
        await bench.handle()
        assert len(bench.observed) == 2

    rig(test)


def test_jobs_that_go_or_are_gone_are_left_alone(rig):
    async def test(rig) -> None:
        bench = Bench(rig, Plan(status={"phase": "Running"}))
        going = job(7)
        going["metadata"]["deletionTimestamp"] = "2026-01-03T00:00:00Z"
        bench.stores.jobs.put(going)
        await bench.handle()
        bench.stores.jobs.remove(bench.stores.jobs.get(KEY))
        await bench.handle()
        assert bench.observed == []
        assert rig.server.requests == []

    rig(test)


def test_a_job_that_goes_while_its_status_is_written_stays_gone(rig, monkeypatch):
    """The answer tells of it when the watch has told that it was deleted; it must not be made pods again."""

    async def test(rig) -> None:
        bench = Bench(rig, Plan(status={"phase": "Running"}))
        patch = bench.controller._client.patch

        async def overtaken(*arguments, **options):
            found = await patch(*arguments, **options)
            bench.stores.jobs.remove(bench.stores.jobs.get(KEY))
            return found

        monkeypatch.setattr(bench.controller._client, "patch", overtaken)
        rig.server.on("PATCH", f"{JOB}/status", job(8))
        await bench.handle()
        assert bench.stores.jobs.get(KEY) is None
        await bench.handle()
        assert len(bench.observed) == 1

    rig(test)


def test_nothing_is_remembered_of_a_job_that_is_gone_or_of_another_of_its_name(rig):
    async def test(rig) -> None:
        bench = Bench(rig, Plan())
        await bench.handle()
        first = bench.controller._memories[KEY]
        bench.stores.jobs.remove(bench.stores.jobs.get(KEY))
        again = job(9)
        again["metadata"]["uid"] = "another"
        bench.stores.jobs.put(again)
        await bench.handle()
        assert bench.controller._memories[KEY] is not first
        bench.stores.jobs.remove(bench.stores.jobs.get(KEY))
        await bench.handle()
        assert bench.controller._memories == {}

    rig(test)


def test_equal_events_become_one_with_a_count(rig):
    async def test(rig) -> None:
        recorder = EventRecorder(rig.client)
        told = Event(type="Warning", reason="CrashLoop", message="x" * 2000)
        rig.server.on("POST", EVENTS, {}, status=201)
        await recorder.record(job(), told)
        (made,) = rig.server.asked("POST")
        path = f"{EVENTS}/{made.body['metadata']['name']}"
        rig.server.on("PATCH", path, {})
        await recorder.record(job(), told)
        await recorder.record(job(), told)
        assert [each.body["count"] for each in rig.server.asked("PATCH")] == [2, 3]
        assert len(made.body["message"]) == 1024
        assert made.body["involvedObject"]["uid"] == "u"
        await recorder.record(job(), Event(type="Warning", reason="CrashLoop", message="another"))
        assert len(rig.server.asked("POST")) == 2

    rig(test)


def test_an_event_with_half_a_character_is_written(rig, caplog):
    caplog.set_level(logging.CRITICAL)  # pytest's processes cannot send such a log to each other

    async def test(rig) -> None:
        rig.server.on("POST", EVENTS, {}, status=201)
        await EventRecorder(rig.client).record(job(), Event(type="Warning", reason="CrashLoop", message="no \ud800"))
        assert [each.body["message"] for each in rig.server.asked("POST")] == ["no ?"]

    rig(test)


def test_an_event_that_cannot_be_written_stops_nothing(rig):
    async def test(rig) -> None:
        rig.server.on("POST", EVENTS, {"message": "no"}, status=403)
        await EventRecorder(rig.client).record(job(), Event(type="Normal", reason="Running", message="m"))

    rig(test)


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}),
        ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
        ({}, {"a": {}}, {"a": {}}),
    ],
)
def test_merge_patches(before, after, patch):
    assert merge_patch(before, after) == patch


def test_nulls_and_empty_texts_are_left_out_at_every_depth():
    assert compact({"a": None, "b": {"c": ""}, "d": ({"e": None},), "f": 0, "g": []}) == {
        "b": {},
        "d": [{}],
        "f": 0,
        "g": [],
    }


def test_metrics_count_looks_and_failures(rig):
    async def test(rig) -> None:
        rig.server.on("POST", HEADS, {"reason": "Forbidden", "message": "no"}, status=403)
        bench = Bench(rig, Plan(actions=(Create(child("Job", "j-head")),)))
        with contextlib.suppress(ApiError):
            await bench.handle()
        value = bench.metrics.registry.get_sample_value
        assert value("reef_operator_reconcile_seconds_count") == 1
        assert value("reef_operator_reconcile_errors_total", {"reason": "Forbidden"}) == 1
        await asyncio.sleep(0)

    rig(test)
