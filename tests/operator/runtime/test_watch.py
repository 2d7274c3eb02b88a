"""LIST and WATCH against a real server that speaks the chunked protocol: resuming, 410, ghosts, big events."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from reef_operator.connection.limits import Backoff
from reef_operator.names import REFUSAL
from reef_operator.runtime.watch import GONE_S, Store, Watch, job_of_label, key_of, newer, trim_job, trim_pod

PODS = "/api/v1/pods"


def pod(name: str, version: int, *, namespace: str = "ns", job: str = "j", **status):
    metadata = {"namespace": namespace, "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": {"reef.dev/job": job}}, "spec": {"volumes": ["x"]}, "status": status}


def listed(version: int, *pods):
    return {"metadata": {"resourceVersion": str(version)}, "items": list(pods)}


def event(kind: str, found):
    return {"type": kind, "object": found}


class Watching:
    """A watch that runs, and what it told."""

    def __init__(self, rig, namespace=None):
        self.store = Store(job_of_label)
        self.changed: list[str] = []
        self.watch = Watch(
            rig.client,
            "Pod",
            namespace,
            selector="app=reef",
            store=self.store,
            trim=trim_pod,
            changed=lambda found: self.changed.append(found["metadata"]["name"]),
            backoff=Backoff(first=0.01, limit=0.02, jitter=0),
        )

    @contextlib.asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.watch.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def names(self) -> set[str]:
        return {found["metadata"]["name"] for found in self.store.all()}


def watches(rig):
    return [each for each in rig.server.asked("GET", "pods") if each.query.get("watch")]


def test_a_list_fills_the_store_and_events_follow(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        rig.server.on("GET", PODS, listed(10, pod("a", 5), pod("b", 6)))
        rig.server.on(
            "GET",
            PODS,
            watch_stream(
                event("MODIFIED", pod("a", 11, phase="Running")),
                event("ADDED", pod("c", 12)),
                event("DELETED", pod("b", 13)),
                hold=hold,
                pieces=7,
            ),
        )
        async with Watching(rig).running() as seen:
            await eventually(lambda: "b" not in seen.names() and "c" in seen.names())
            assert seen.names() == {"a", "c"}
            assert seen.store.get(("ns", "a"))["status"] == {"phase": "Running"}
            assert seen.changed == ["a", "b", "a", "c", "b"]
            assert [key_of(found) for found in seen.store.of_job(("ns", "j"))] == [("ns", "a"), ("ns", "c")]
            assert "volumes" not in seen.store.get(("ns", "a"))["spec"]
            hold.set()
        (request,) = watches(rig)
        assert request.query["resourceVersion"] == "10"
        assert request.query["labelSelector"] == "app=reef"
        assert request.query["allowWatchBookmarks"] == "true"

    rig(test)


def test_a_stream_that_ends_is_resumed_where_it_was_also_after_a_bookmark(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "40"}})
        rig.server.on("GET", PODS, listed(10), watch_stream(event("ADDED", pod("a", 12))))
        rig.server.on("GET", PODS, watch_stream(bookmark), watch_stream(hold=hold))
        async with Watching(rig).running() as seen:
            await eventually(lambda: len(watches(rig)) == 3)
            assert [each.query["resourceVersion"] for each in watches(rig)] == ["10", "12", "40"]
            assert len(rig.server.requests) == 4  # listed once
            assert seen.names() == {"a"}
            hold.set()

    rig(test)


def test_every_state_that_comes_by_is_delivered_also_where_it_is_known(rig, watch_stream, eventually):
    """The proof that a watch lives needs what we wrote ourselves, and what went unseen, too."""

    async def test(rig) -> None:
        hold = asyncio.Event()
        rig.server.on("GET", PODS, listed(10, pod("a", 5), pod("b", 6)))
        gone = event("ERROR", {"code": 410, "message": "too old"})
        rig.server.on("GET", PODS, watch_stream(event("MODIFIED", pod("a", 5)), event("DELETED", pod("b", 7)), gone))
        rig.server.on("GET", PODS, listed(20), watch_stream(hold=hold))
        told = []
        watching = Watching(rig)
        watching.watch._delivered = lambda found, how: told.append((found["metadata"]["name"], how))
        async with watching.running():
            await eventually(lambda: len(told) == 5)
            hold.set()
        assert told == [("a", "LISTED"), ("b", "LISTED"), ("a", "MODIFIED"), ("b", "DELETED"), ("a", "DELETED")]

    rig(test)


def test_of_a_job_little_is_kept_and_of_one_beyond_the_limits_why_it_is_refused():
    noise = {"managedFields": [{}], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x"}}
    metadata = {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "3", "generation": 2}
    found = {
        "metadata": {**metadata, **noise},
        "spec": {"suspend": True, "config": {"lr": 1}},
        "status": {"phase": "P"},
    }
    kept = trim_job(found)
    assert kept["metadata"] == metadata
    assert (kept["spec"], kept["status"]) == (found["spec"], found["status"])
    assert REFUSAL not in kept
    for config, why in (({"a": "x" * 300_000}, "256 KiB"), (nested(65), "64 levels"), (nested(50_000), "64 levels")):
        kept = trim_job({**found, "spec": {"suspend": True, "config": config}})
        assert kept["spec"] == {"suspend": True} and why in kept[REFUSAL]


def test_of_a_pod_nothing_is_kept_that_a_template_can_make_as_large_as_it_likes():
    labels = {"reef.dev/job": "j", "reef.dev/component": "worker", "reef.dev/pool": "cpu"}
    metadata = {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "3"}
    large = {"annotations": {"x": "y" * 250_000}, "labels": labels | {f"l{number}": "x" * 60 for number in range(999)}}
    container = {"name": "reef", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    spec = {"nodeName": "n", "volumes": [{}] * 999, "containers": [container | {"env": [{}], "args": ["a"]}]}
    kept = trim_pod({"metadata": {**metadata, **large}, "spec": spec, "status": {"phase": "Running"}})
    assert kept == {
        "metadata": {**metadata, "labels": labels},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {"phase": "Running"},
    }


def nested(levels: int):
    inner = {}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize("how", ["event", "status"])
def test_after_410_it_lists_again_and_ghosts_vanish(rig, watch_stream, eventually, how):
    async def test(rig) -> None:
        hold = asyncio.Event()
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        rig.server.on("GET", PODS, listed(10, pod("a", 5), pod("ghost", 6)))
        if how == "event":
            rig.server.on("GET", PODS, watch_stream(event("ERROR", gone)))
        else:
            rig.server.on("GET", PODS, gone, status=410)
        rig.server.on("GET", PODS, listed(90, pod("a", 5)), watch_stream(hold=hold))
        async with Watching(rig).running() as seen:
            await eventually(lambda: len(watches(rig)) == 2)
            assert seen.names() == {"a"}
            assert seen.changed == ["a", "ghost", "ghost"]
            assert watches(rig)[1].query["resourceVersion"] == "90"
            hold.set()

    rig(test)


def test_errors_never_end_it(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        broken = event("ERROR", {"code": 500, "reason": "InternalError", "message": "etcd"})
        rig.server.on("GET", PODS, {"message": "not now"}, status=403)
        rig.server.on("GET", PODS, {"message": "not now"}, status=403)
        rig.server.on("GET", PODS, listed(1), watch_stream(broken), listed(2))
        rig.server.on("GET", PODS, {"message": "no"}, status=401)
        rig.server.on("GET", PODS, watch_stream(event("ADDED", pod("a", 3)), hold=hold))
        async with Watching(rig).running() as seen:
            await eventually(lambda: seen.names() == {"a"})
            hold.set()

    rig(test)


def test_an_event_may_be_bigger_than_any_buffer(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        big = pod("big", 11, message="x" * 3_000_000)
        rig.server.on("GET", PODS, listed(10), watch_stream(event("ADDED", big), hold=hold))
        async with Watching(rig).running() as seen:
            await eventually(lambda: seen.names() == {"big"})
            hold.set()

    rig(test)


def test_ghosts_of_other_namespaces_stay(rig, watch_stream, eventually):
    async def test(rig) -> None:
        hold = asyncio.Event()
        path = "/api/v1/namespaces/ns/pods"
        rig.server.on("GET", path, listed(10), watch_stream(hold=hold))
        seen = Watching(rig, namespace="ns")
        seen.store.put(pod("ghost", 1))
        seen.store.put(pod("other", 1, namespace="elsewhere"))
        async with seen.running():
            await eventually(lambda: bool(watches(rig)))
            assert seen.names() == {"other"}
            hold.set()

    rig(test)


def test_a_namespace_that_is_closed_is_asked_again_until_it_is_open(rig, eventually):
    async def test(rig) -> None:
        path = "/api/v1/namespaces/ns/pods"
        refused = {"reason": "Forbidden", "message": "no"}
        rig.server.on("GET", path, refused, refused, status=403)
        rig.server.on("GET", path, listed(10, pod("a", 5)))
        async with Watching(rig, "ns").running() as seen:
            await asyncio.wait_for(seen.watch.answered.wait(), 5)
            assert seen.watch.is_closed
            await eventually(lambda: seen.names() == {"a"})
            assert not seen.watch.is_closed

    rig(test)


def test_a_cluster_that_refuses_is_waited_for(rig, eventually):
    async def test(rig) -> None:
        rig.server.on("GET", PODS, {"reason": "Forbidden", "message": "no"}, status=403)
        async with Watching(rig).running() as seen:
            await eventually(lambda: len(rig.server.requests) > 2)
            assert not seen.watch.answered.is_set()

    rig(test)


def test_a_store_keeps_the_newest_state():
    store = Store(job_of_label)
    assert store.put(pod("a", 10, phase="new"))
    assert not store.put(pod("a", 9, phase="old"))
    assert not store.put(pod("a", 10, phase="again"))
    assert store.get(("ns", "a"))["status"] == {"phase": "new"}
    assert store.put(pod("a", 11, job="k"))
    assert store.of_job(("ns", "j")) == []
    assert len(store.of_job(("ns", "k"))) == 1
    store.remove(pod("a", 12))
    assert store.of_job(("ns", "k")) == []


def test_what_has_gone_does_not_come_back_with_an_older_answer(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    store = Store(job_of_label)
    store.put(pod("a", 10))
    assert store.remove(pod("a", 12)) is not None
    assert not store.put(pod("a", 11)), "a page of a list that was read before"
    assert store.all() == []
    another = pod("a", 20)
    another["metadata"]["uid"] = "another"
    assert store.put(another)
    assert store.remove(pod("a", 13)) is None, "told once more of the first"
    assert store.all() == [another]
    assert not store.put(pod("a", 25)), "what another has replaced has gone too"
    now += GONE_S + 1
    store.remove(pod("c", 5))
    assert list(store._gone) == ["u-c"], "nothing is kept for ever"


def test_another_object_of_the_same_name_is_always_newer():
    before, after = pod("a", 10), pod("a", 3)
    after["metadata"]["uid"] = "another"
    assert newer(after, before)
