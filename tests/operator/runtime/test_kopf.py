"""Kopf itself against a real HTTP server: what it delivers, what it asks for, and that a deaf watch is found out."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp
import kopf
import pytest
from aiohttp import web

from reef_operator import watching
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.watch import Store, key_of
from reef_operator.watching import kopf_settings, registry, silence

CANARY = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/reef-canary"
JOBS, LEASES = "/apis/reef.dev/v1/rltrainingjobs", "/apis/coordination.k8s.io/v1/leases"


def found(version: int, name: str = "j", kind: str = "RLTrainingJob"):
    metadata = {"namespace": "ns", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "reef.dev/v1", "kind": kind, "metadata": {**metadata, "managedFields": [{}]}}


def listed(*items):
    return {"metadata": {"resourceVersion": "10"}, "items": list(items)}


RESOURCES = [  # the last two Kopf wants to know of, and does not watch
    ("reef.dev", "rltrainingjobs", "RLTrainingJob"),
    ("coordination.k8s.io", "leases", "Lease"),
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
    """Kopf with our handlers, and what they told."""

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

    @contextlib.asynccontextmanager
    async def kopf(self):
        async def login() -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=f"http://127.0.0.1:{self._rig.server.port}", token="t")

        async def ended() -> None:
            self.ended.set()

        handlers = registry(
            login,
            self._rig.client,
            jobs=self.jobs,
            changed=self.changed.append,
            proof=self.proof,
            canary=("ns", "reef-canary"),
            silences=lambda: self.silences,
            ended=ended,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                registry=handlers,
                settings=kopf_settings("reef-canary"),
                clusterwide=True,
                standalone=True,
                liveness_endpoint=f"http://127.0.0.1:{self.port}/healthz",
                stop_flag=stop,
            )
        )
        try:
            yield
        finally:
            stop.set()
            await task

    async def health(self) -> int:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/healthz") as answer:
            return answer.status


def test_events_fill_the_store_and_queue_keys_and_nothing_is_written(rig, watch_stream, eventually):
    async def test(rig) -> None:
        discovery(rig.server)
        hold = asyncio.Event()
        changes = [
            {"type": "MODIFIED", "object": found(11)},
            {"type": "MODIFIED", "object": found(11)},  # what we wrote ourselves comes back
            {"type": "ADDED", "object": found(12, "k")},
            {"type": "DELETED", "object": found(13, "k")},
        ]
        rig.server.on("GET", JOBS, listed(found(9)), watch_stream(*changes, hold=hold))
        rig.server.on("GET", LEASES, listed(), watch_stream(hold=hold))
        running = Running(rig)
        async with running.kopf():
            await eventually(lambda: ("ns", "k") in running.changed and not running.jobs.get(("ns", "k")))
            await eventually(lambda: running.jobs.get(("ns", "j"))["metadata"]["resourceVersion"] == "11")
            assert "managedFields" not in running.jobs.get(("ns", "j"))["metadata"]
            hold.set()
        assert running.ended.is_set()
        assert {each.method for each in rig.server.requests} == {"GET"}  # no patch, no event
        leases = [each.query.get("fieldSelector") for each in rig.server.asked("GET", LEASES)]
        assert set(leases) == {"metadata.name=reef-canary"}
        asked = {each.path for each in rig.server.requests}
        assert not any(path.endswith(("/namespaces", "/customresourcedefinitions")) for path in asked)

    rig(test)


def test_a_refusal_does_not_end_the_watch(rig, watch_stream, eventually):
    async def test(rig) -> None:
        discovery(rig.server)
        hold = asyncio.Event()
        rig.server.on("GET", JOBS, {"message": "not now"}, status=403)
        rig.server.on("GET", JOBS, {"message": "not now"}, status=503)
        rig.server.on("GET", JOBS, listed(found(9)), watch_stream(hold=hold))
        rig.server.on("GET", LEASES, listed(), watch_stream(hold=hold))
        running = Running(rig)
        async with running.kopf():
            await eventually(lambda: running.changed == [("ns", "j")])
            hold.set()

    rig(test)


def test_an_error_that_kopf_does_not_survive_ends_the_operator(rig, watch_stream, eventually):
    """Then the kubelet starts it again; older Kopfs went on without the watch (nolar/kopf#1145)."""

    async def test(rig) -> None:
        discovery(rig.server)
        hold = asyncio.Event()
        error = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}}
        rig.server.on("GET", JOBS, listed(found(9)), watch_stream(error))
        rig.server.on("GET", LEASES, listed(), watch_stream(hold=hold))
        running = Running(rig)
        with pytest.raises(Exception, match="Error in the watch-stream"):
            async with running.kopf():
                await eventually(lambda: running.ended.is_set())
        hold.set()

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
    monkeypatch.setattr(watching, "ANSWER_S", 0.2)

    async def test(rig) -> None:
        hold = asyncio.Event()

        async def hangs(*_):
            await hold.wait()
            return web.json_response({})

        rig.server.on("GET", CANARY, hangs)
        async with asyncio.timeout(10):
            assert await silence(rig.client, ("ns", "reef-canary"), {"Pod": 400.0}) == ""
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
