"""Kopf itself beside our watches, against a real HTTP server: what it asks for, and that a deaf watch is found out."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp
import kopf
import pytest
from aiohttp import web

from reef_operator import lifecycle
from reef_operator.lifecycle import fault_of, kopf_settings, registry, silence
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.watch import Store, Watch, key_of, trim_job, trim_lease

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
CANARY = f"{LEASES}/reef-canary"
JOBS = "/apis/reef.dev/v1/rltrainingjobs"


def found(version: int, name: str = "j", kind: str = "RLTrainingJob"):
    metadata = {"namespace": "ns", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "reef.dev/v1", "kind": kind, "metadata": {**metadata, "managedFields": [{}]}}


def listed(*items):
    return {"metadata": {"resourceVersion": "10"}, "items": list(items)}


RESOURCES = [  # Kopf wants to know of them, and does not watch them
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
    ("", "namespaces", "Namespace"),
]


def silent_watches(server, watch_stream) -> asyncio.Event:
    """One job is listed; then its watch and that of the Lease say nothing until the event is set, which ends them."""
    discovery(server)
    hold = asyncio.Event()
    server.on("GET", JOBS, listed(found(9)), watch_stream(hold=hold))
    server.on("GET", LEASES, listed(), watch_stream(hold=hold))
    return hold


def discovery(server) -> None:
    groups = []
    for group, plural, kind in RESOURCES:
        version = {"groupVersion": f"{group}/v1", "version": "v1"}
        verbs = ["get", "list", "watch", "patch"]
        resource = {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
        server.on("GET", f"/apis/{group}/v1" if group else "/api/v1", {"resources": [resource]})
        if group:
            groups.append({"name": group, "versions": [version], "preferredVersion": version})
    server.on("GET", "/apis", {"groups": groups})
    server.on("GET", "/api", {"versions": ["v1"]})


class Running:
    """Kopf with our handlers, and the watches of jobs and of the canary."""

    def __init__(self, rig, patience_s: float = 60.0) -> None:
        self.jobs = Store(key_of)
        self.changed = []
        self.proof = WatchProof(patience_s)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.ended = asyncio.Event()
        self.silences = {"Pod": 30.0}
        self._rig = rig
        self._watches = [
            Watch(
                rig.client,
                "RLTrainingJob",
                None,
                store=self.jobs,
                trim=trim_job,
                changed=lambda job: self.changed.append(key_of(job)),
                delivered=self.proof.saw,
            ),
            Watch(
                rig.client,
                "Lease",
                "ns",
                name="reef-canary",
                store=Store(key_of),
                trim=trim_lease,
                changed=lambda lease: None,
                delivered=self.proof.saw,
            ),
        ]

    @contextlib.asynccontextmanager
    async def kopf(self):
        async def login() -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=f"http://127.0.0.1:{self._rig.server.port}", token="t")

        async def ended() -> None:
            self.ended.set()

        handlers = registry(
            login,
            self._rig.client,
            proof=self.proof,
            canary=("ns", "reef-canary"),
            silences=lambda: self.silences,
            ended=ended,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                registry=handlers,
                settings=kopf_settings(),
                clusterwide=True,
                standalone=True,
                liveness_endpoint=f"http://127.0.0.1:{self.port}/healthz",
                stop_flag=stop,
            )
        )
        watches = [asyncio.create_task(watch.run()) for watch in self._watches]
        try:
            yield
        finally:
            for watch in watches:
                watch.cancel()
            stop.set()
            await task

    async def health(self) -> int:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/healthz") as answer:
            return answer.status


def test_kopf_asks_what_is_served_and_nothing_more_and_writes_nothing(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = silent_watches(rig.server, watch_stream)
        running = Running(rig)
        async with running.kopf():
            await eventually(lambda: running.changed == [("ns", "j")])
            await eventually(lambda: rig.server.asked("GET", "/apis/apiextensions.k8s.io/v1"))
            assert await running.health() == 200
            hold.set()
        assert running.ended.is_set()
        assert {each.method for each in rig.server.requests} == {"GET"}  # no patch, no event
        asked = {each.path for each in rig.server.requests} - {JOBS, LEASES}
        assert all(path == "/api" or path == "/apis" or path.endswith("/v1") for path in asked), asked
        queries = [each.query for each in rig.server.requests if each.path == LEASES]
        assert {query.get("fieldSelector") for query in queries} == {"metadata.name=reef-canary"}

    rig(test)


def test_the_probe_fails_when_a_watch_is_deaf(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = silent_watches(rig.server, watch_stream)
        running = Running(rig, patience_s=0.2)
        async with running.kopf():
            await eventually(lambda: running.changed == [("ns", "j")])
            rig.server.on("GET", "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs", listed(found(20)))
            running.proof.expect(found(20))  # somebody wrote it
            await asyncio.sleep(0.5)
            assert await running.health() == 500
            hold.set()

    rig(test)


def test_the_probe_is_well_while_watches_deliver(rig, watch_stream, eventually):
    async def test(rig) -> None:
        discovery(rig.server)
        hold = asyncio.Event()
        rig.server.on("GET", JOBS, listed(found(9)), watch_stream(hold=hold))
        canary = {"type": "MODIFIED", "object": found(20, "reef-canary", "Lease")}
        rig.server.on("GET", LEASES, listed(), watch_stream(canary, hold=hold))
        running = Running(rig, patience_s=0.2)
        running.proof.expect(found(20, "reef-canary", "Lease"))
        async with running.kopf():
            await eventually(lambda: running.changed == [("ns", "j")])
            await asyncio.sleep(0.5)  # longer than its patience
            await eventually(lambda: running.proof.overdue() == [])
            assert await running.health() == 200
            hold.set()

    rig(test)


@pytest.mark.parametrize(
    ("seconds", "server", "health"), [(350.0, 200, 200), (370.0, 503, 200), (370.0, 200, 500), (370.0, 403, 500)]
)
def test_the_probe_fails_when_another_watch_is_silent_and_the_api_server_is_not(rig, seconds, server, health):
    async def test(rig) -> None:
        rig.server.on("GET", CANARY, {}, status=server)
        fault = await silence(rig.client, ("ns", "reef-canary"), {"Job": 10.0, "Pod": seconds})
        assert ("Pod" in fault) is (health == 500)

    rig(test)


def test_the_probe_does_not_wait_for_an_api_server_that_hangs(rig, monkeypatch):
    monkeypatch.setattr(lifecycle, "ANSWER_S", 0.2)

    async def test(rig) -> None:
        hold = asyncio.Event()

        async def hangs(*_):
            await hold.wait()
            return web.json_response({})

        rig.server.on("GET", CANARY, hangs)
        rig.server.on("GET", "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs", hangs)
        missed = WatchProof(patience_s=0.0)
        missed.expect(found(20))
        async with asyncio.timeout(10):
            for proof in (WatchProof(), missed):
                assert await fault_of(proof, rig.client, ("ns", "reef-canary"), {"Pod": 400.0}) == ""
        hold.set()

    rig(test)


def test_the_liveness_endpoint_asks_for_the_other_watches_too(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = silent_watches(rig.server, watch_stream)
        running = Running(rig)
        async with running.kopf():
            await eventually(lambda: running.changed == [("ns", "j")])
            assert await running.health() == 200
            running.silences["Pod"] = 400.0
            async with asyncio.timeout(15):  # Kopf remembers an answer for a while
                while await running.health() != 500:
                    await asyncio.sleep(0.5)
            hold.set()

    rig(test)
