"""Listing all jobs and sweeping orphans, against a real HTTP server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from reef_operator.model import Server
from reef_operator.runtime import upkeep as upkeep_module
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.queue import WorkQueue
from reef_operator.runtime.upkeep import Upkeep, is_orphan
from reef_operator.runtime.watch import Store, Stores, job_of_label, key_of

JOBS = "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs"
LABELS = {"app.kubernetes.io/managed-by": "reef-operator", "reef.dev/job": "j"}
OWNER = {"kind": "RLTrainingJob", "uid": "u"}


def named(name: str, *, uid: str = "", labels=None, owners=(), version: int = 1, **more):
    metadata = {"namespace": "ns", "name": name, "uid": uid or f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": labels or {}, "ownerReferences": list(owners), **more}}


def bench(rig):
    owned = {kind: Store(job_of_label) for kind in ("Job", "Deployment")}
    stores = Stores(jobs=Store(key_of), pods=Store(job_of_label), owned=owned)
    queue, metrics, listed = WorkQueue(), Metrics(), []
    upkeep = Upkeep(rig.client, ["ns"], stores, queue=queue, metrics=metrics, listed=listed.append)
    return upkeep, stores, queue, metrics, listed


def test_all_jobs_are_looked_at_again_and_ghosts_vanish(rig):
    async def test(rig) -> None:
        upkeep, stores, queue, _, listed = bench(rig)
        stores.jobs.put(named("ghost"))
        stores.jobs.put(named("young"))  # made after the list was
        rig.server.on("GET", JOBS, {"items": [named("j", version=3)], "metadata": {}})
        rig.server.on("GET", f"{JOBS}/young", named("young"))
        await upkeep.resync()
        assert {key[1] for key in stores.jobs.keys(None)} == {"j", "young"}
        assert [each["metadata"]["name"] for each in listed] == ["j"]
        assert {await queue.get(), await queue.get()} == {("ns", "j"), ("ns", "ghost")}

    rig(test)


def test_a_job_that_went_while_it_was_listed_stays_gone(rig):
    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        stores.jobs.put(named("j"))
        stores.jobs.remove(named("j"))
        rig.server.on("GET", JOBS, {"items": [named("j")], "metadata": {}})
        await upkeep.resync()
        assert stores.jobs.all() == []

    rig(test)


def test_every_round_begins_with_what_the_server_can_do(rig):
    async def test(rig) -> None:
        begun = []
        stores = Stores(jobs=Store(key_of), pods=Store(job_of_label), owned={})
        upkeep = Upkeep(
            rig.client, ["ns"], stores, queue=WorkQueue(), metrics=Metrics(), begun=begun.append, interval_s=0.01
        )
        rig.server.on("GET", "/version", {"major": "1", "minor": "20"}, {"major": "1", "minor": "30"})
        rig.server.on("GET", JOBS, {"items": [], "metadata": {}})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await upkeep.run()
        assert begun[:2] == [Server(minor=20), Server(minor=30)]

    rig(test)


def test_a_closed_namespace_holds_up_no_other(rig):
    async def test(rig) -> None:
        _, stores, queue, metrics, _ = bench(rig)
        upkeep = Upkeep(rig.client, ["closed", "ns"], stores, queue=queue, metrics=metrics)
        refused = {"reason": "Forbidden", "message": "no"}
        rig.server.on("GET", "/apis/reef.dev/v1/namespaces/closed/rltrainingjobs", refused, status=403)
        rig.server.on("GET", JOBS, {"items": [named("j")], "metadata": {}})
        await upkeep.resync()
        assert await queue.get() == ("ns", "j")

    rig(test)


def test_what_could_not_be_removed_is_tried_again_in_the_next_round(rig):
    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        stores.gone |= {("ns", "i"), ("ns", "j")}
        path = "/api/v1/namespaces/ns/configmaps/{}-job"
        rig.server.on("GET", path.format("i"), {"reason": "Forbidden", "message": "no"}, status=403)
        rig.server.on("GET", path.format("j"), {"reason": "Forbidden", "message": "no"}, status=403)
        rig.server.on("GET", path.format("j"), named("j-job", labels=LABELS))
        rig.server.on("DELETE", path.format("j"), {})
        await upkeep.sweep()
        await upkeep.sweep()
        assert rig.server.asked("DELETE") == []
        await upkeep.sweep()
        assert [each.path for each in rig.server.asked("DELETE")] == [path.format("j")]

    rig(test)


def test_a_job_that_is_created_anew_while_orphans_are_looked_for_keeps_its_objects(rig):
    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        stores.gone.add(("ns", "j"))
        new = {"kind": "RLTrainingJob", "uid": "new"}

        async def made_meanwhile(*_) -> web.Response:
            rig.server.on("GET", f"{JOBS}/j", named("j", uid="new"))
            return web.json_response(named("j-job", labels=LABELS, owners=[new]))

        rig.server.on("GET", "/api/v1/namespaces/ns/configmaps/j-job", made_meanwhile)
        await upkeep.sweep()
        await upkeep.sweep()
        assert rig.server.asked("DELETE") == []

    rig(test)


def test_what_one_namespace_leaves_does_not_hold_up_another_nor_the_next_round(rig, monkeypatch):
    async def test(rig) -> None:
        monkeypatch.setattr(upkeep_module, "SWEPT", 4)
        upkeep, stores, *_ = bench(rig)
        stores.gone |= {("crowd", f"j{number}") for number in range(9)} | {("ns", "one"), ("ns", "two")}
        await upkeep.sweep()
        asked = []
        for _ in range(3):
            before = len(rig.server.requests)
            await upkeep.sweep()
            asked.append([each.path.split("/")[4] for each in rig.server.requests[before:]])
        assert [len(each) for each in asked] == [4, 4, 3]
        assert asked[0].count("ns") == 2, "in their turn"
        assert sum(each.count("crowd") for each in asked) == 9

    rig(test)


def test_what_has_a_job_is_not_even_asked_for(rig):
    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        stores.jobs.put(named("j", uid="u"))
        stores.owned["Job"].put(named("j-head", labels=LABELS, owners=[OWNER]))
        await upkeep.sweep()
        assert rig.server.requests == []

    rig(test)


def test_orphans_go_after_the_api_server_was_asked(rig):
    async def test(rig) -> None:
        upkeep, stores, _, metrics, _ = bench(rig)
        stores.owned["Job"].put(named("j-head", labels=LABELS))
        stores.owned["Deployment"].put(named("j-cpu", labels=LABELS, owners=[OWNER]))
        rig.server.on("GET", "/api/v1/namespaces/ns/secrets/j-ray-token", named("j-ray-token", labels=LABELS))
        rig.server.on("GET", "/api/v1/namespaces/ns/configmaps/j-job", named("j-job"))  # somebody else's
        for path in ("batch/v1/namespaces/ns/jobs/j-head", "apps/v1/namespaces/ns/deployments/j-cpu"):
            rig.server.on("DELETE", f"/apis/{path}", {})
        rig.server.on("DELETE", "/api/v1/namespaces/ns/secrets/j-ray-token", {})
        await upkeep.sweep()
        assert rig.server.requests == []  # the garbage collector may be about to do it
        await upkeep.sweep()
        deleted = [
            (each.path.rsplit("/", 1)[1], each.body["preconditions"]["uid"]) for each in rig.server.asked("DELETE")
        ]
        assert deleted == [("j-head", "u-j-head"), ("j-cpu", "u-j-cpu"), ("j-ray-token", "u-j-ray-token")]
        assert metrics.registry.get_sample_value("reef_operator_orphans_deleted_total") == 3

    rig(test)


@pytest.mark.parametrize(
    ("job", "gone"),
    [(None, True), ("2026-01-02T00:00:00Z", True), ("2026-01-01T00:00:00Z", False)],
    ids=["gone", "another", "same"],
)
def test_pods_that_lost_their_owners_go_when_their_job_is_gone(rig, job, gone):
    """As after `kubectl delete job --cascade=orphan`: nobody else ends them, and they hold GPUs."""

    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        made = "2026-01-01T12:00:00Z"
        stores.pods.put(named("j-head-x", labels=LABELS, creationTimestamp=made))
        stores.pods.put(named("j-head-y", labels=LABELS, creationTimestamp=made, owners=[{"kind": "Job", "uid": "h"}]))
        if job:
            stores.jobs.put(named("j", uid="u", creationTimestamp=job))
            rig.server.on("GET", f"{JOBS}/j", named("j", uid="u", creationTimestamp=job))
        for name in ("x", "y"):
            rig.server.on("DELETE", f"/api/v1/namespaces/ns/pods/j-head-{name}", {})
        await upkeep.sweep()
        await upkeep.sweep()
        assert [each.body["preconditions"]["uid"] for each in rig.server.asked("DELETE")] == ["u-j-head-x"] * gone

    rig(test)


@pytest.mark.parametrize("left", [True, False])
def test_what_a_job_that_had_ended_left_behind_goes_too(rig, left):
    """Its batch Job and Deployments went before it, so that no watch tells of the rest."""

    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        stores.gone.add(("ns", "j"))
        path = "/api/v1/namespaces/ns/configmaps/j-job"
        if left:
            rig.server.on("GET", path, named("j-job", labels=LABELS))
            rig.server.on("DELETE", path, {})
        await upkeep.sweep()
        assert rig.server.requests == []  # the garbage collector may be about to do it
        await upkeep.sweep()
        assert [each.path for each in rig.server.asked("DELETE")] == [path] * left
        asked = len(rig.server.asked("GET"))
        assert left or asked == 1
        await upkeep.sweep()
        assert len(rig.server.asked("GET")) == asked

    rig(test)


@pytest.mark.parametrize("ingresses", [True, False])
def test_ingresses_of_a_deleted_job_go_where_the_operator_may_delete_them(rig, ingresses):
    async def test(rig) -> None:
        _, stores, queue, metrics, _ = bench(rig)
        upkeep = Upkeep(rig.client, ["ns"], stores, queue=queue, metrics=metrics, ingresses=ingresses)
        stores.gone.add(("ns", "j"))
        left = {
            "/api/v1/namespaces/ns/configmaps/j-job": "j-job",
            "/api/v1/namespaces/ns/services/j-policy": "j-policy",
            "/apis/networking.k8s.io/v1/namespaces/ns/ingresses/j-policy": "j-policy",
        }
        for path, name in left.items():
            rig.server.on("GET", path, named(name, labels=LABELS))
            rig.server.on("DELETE", path, {})
        await upkeep.sweep()
        await upkeep.sweep()
        assert [each.path for each in rig.server.asked("DELETE")] == list(left)[: 2 + ingresses]
        assert len(rig.server.asked("GET", "ingresses")) == ingresses

    rig(test)


def test_children_of_a_job_that_only_the_api_server_knows_stay(rig):
    async def test(rig) -> None:
        upkeep, stores, *_ = bench(rig)
        stores.owned["Deployment"].put(named("j-cpu", labels=LABELS, owners=[OWNER]))
        rig.server.on("GET", f"{JOBS}/j", named("j", uid="u"))
        await upkeep.sweep()
        await upkeep.sweep()
        assert len(rig.server.asked("GET", f"{JOBS}/j")) == 1
        assert rig.server.asked("DELETE") == []

    rig(test)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (named("x", labels=LABELS), True),
        (named("x", labels=LABELS, owners=[OWNER]), True),
        (named("x", labels=LABELS, owners=[{"kind": "RLTrainingJob", "uid": "now"}]), False),
        (named("x", labels=LABELS, owners=[{"kind": "Application", "uid": "v"}]), False),
        (named("x", labels=LABELS, deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (named("x", labels={**LABELS, "app.kubernetes.io/managed-by": "Helm"}), False),
        (named("x", labels={**LABELS, "reef.dev/job": "k"}), False),
    ],
)
def test_orphans(found, expected):
    assert is_orphan(found, ("ns", "j"), "now") is expected
