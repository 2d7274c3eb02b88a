"""What probes are told: of deaf and silent watches, of an API server that hangs, of an event loop that does."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from reef_operator import health
from reef_operator.health import Health, fault_of, nothing_wrong, silence
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.watch import Store, Watch, key_of, trim_job, trim_lease

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
CANARY = f"{LEASES}/reef-canary"
JOBS = "/apis/reef.dev/v1/rltrainingjobs"
OF_ONE_NAMESPACE = "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs"


def found(version: int, name: str = "j", kind: str = "RLTrainingJob"):
    metadata = {"namespace": "ns", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "reef.dev/v1", "kind": kind, "metadata": {**metadata, "managedFields": [{}]}}


def listed(*items):
    return {"metadata": {"resourceVersion": "10"}, "items": list(items)}


class Watching:
    """The watches of jobs and of the canary, and a look at them again and again."""

    def __init__(self, rig, patience_s: float = 60.0) -> None:
        self.changed = []
        self.proof = WatchProof(patience_s)
        self.silences = {"Pod": 30.0}
        self.health = Health()
        self._rig = rig
        made = [("RLTrainingJob", None, "", trim_job), ("Lease", "ns", "reef-canary", trim_lease)]
        self._watches = [
            Watch(
                rig.client,
                kind,
                namespace,
                name=name,
                store=Store(key_of),
                trim=trim,
                changed=lambda each: self.changed.append(key_of(each)),
                delivered=self.proof.saw,
            )
            for kind, namespace, name, trim in made
        ]

    @contextlib.asynccontextmanager
    async def running(self):
        parts = [self.health.run(self.fault), *(watch.run() for watch in self._watches)]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def fault(self) -> str:
        return await fault_of(self.proof, self._rig.client, ("ns", "reef-canary"), self.silences)

    def status(self) -> int:
        return int(self.health.answer("/healthz").status)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr(health, "PAUSE_S", 0.02)


def test_the_probe_fails_when_a_watch_is_deaf(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        rig.server.on("GET", JOBS, listed(found(9)), watch_stream(hold=hold))
        rig.server.on("GET", LEASES, listed(), watch_stream(hold=hold))
        rig.server.on("GET", OF_ONE_NAMESPACE, listed(found(20)))
        async with Watching(rig, patience_s=0.2).running() as seen:
            await eventually(lambda: ("ns", "j") in seen.changed)
            seen.proof.expect(found(20))  # somebody wrote it
            assert seen.status() == 200
            await eventually(lambda: seen.status() == 500)
            assert b"did not deliver RLTrainingJob ns/j" in seen.health.answer("/healthz").body
            hold.set()

    rig(test)


def test_the_probe_is_well_while_watches_deliver(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        rig.server.on("GET", JOBS, listed(found(9)), watch_stream(hold=hold))
        canary = {"type": "MODIFIED", "object": found(20, "reef-canary", "Lease")}
        rig.server.on("GET", LEASES, listed(), watch_stream(canary, hold=hold))
        watching = Watching(rig, patience_s=0.2)
        watching.proof.expect(found(20, "reef-canary", "Lease"))
        async with watching.running() as seen:
            await eventually(lambda: ("ns", "j") in seen.changed)
            await asyncio.sleep(0.5)  # longer than its patience
            await eventually(lambda: seen.proof.overdue() == [])
            assert seen.status() == 200
            hold.set()

    rig(test)


@pytest.mark.parametrize(
    ("seconds", "server", "fails"), [(350.0, 200, False), (370.0, 503, False), (370.0, 200, True), (370.0, 403, True)]
)
def test_a_watch_that_is_silent_while_the_api_server_is_not_is_a_fault(rig, seconds, server, fails):
    async def test(rig) -> None:
        rig.server.on("GET", CANARY, {}, status=server)
        fault = await silence(rig.client, ("ns", "reef-canary"), {"Job": 10.0, "Pod": seconds})
        assert ("Pod" in fault) is fails

    rig(test)


def test_a_look_does_not_wait_for_an_api_server_that_hangs(rig, monkeypatch):
    monkeypatch.setattr(health, "ANSWER_S", 0.2)

    async def test(rig) -> None:
        hold = asyncio.Event()

        async def hangs(*_):
            await hold.wait()
            return web.json_response({})

        rig.server.on("GET", CANARY, hangs)
        rig.server.on("GET", OF_ONE_NAMESPACE, hangs)
        missed = WatchProof(patience_s=0.0)
        missed.expect(found(20))
        async with asyncio.timeout(10):
            for proof in (WatchProof(), missed):
                assert await fault_of(proof, rig.client, ("ns", "reef-canary"), {"Pod": 400.0}) == ""
        hold.set()

    rig(test)


def test_an_event_loop_that_stands_still_is_a_fault(eventually):
    now = 100.0
    health = Health(clock=lambda: now)

    async def test() -> None:
        nonlocal now
        looks = asyncio.create_task(health.run(nothing_wrong))
        await asyncio.sleep(0)
        now += 19
        assert health.answer("/healthz").status == 200
        await eventually(lambda: health._newest[0] == now)
        now += 21  # and nothing else may run
        answer = health.answer("/healthz")
        assert (answer.status, answer.body) == (500, b"nothing was done for 21 s\n")
        await eventually(lambda: health.answer("/healthz").status == 200)
        looks.cancel()

    asyncio.run(test())


def test_other_paths_are_not_found():
    assert Health().answer("/").status == 404
