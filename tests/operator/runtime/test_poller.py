"""The poller against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest
from aiohttp import web

from reef_operator.runtime.poller import LARGEST_REPORT, TRAINING_PER_S, Poller, pauses, url_of

KEY = ("ns", "j")


def head(
    uid: str = "u1",
    *,
    job: str = "j",
    phase: str = "Running",
    address: str = "127.0.0.1",
    component: str = "head",
    namespace: str = "ns",
):
    labels = {"reef.dev/job": job, "reef.dev/component": component}
    metadata = {"namespace": namespace, "name": f"{job}-{uid}", "uid": uid, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "podIP": address}}


async def rounds(poller: Poller, count: int = 1, timeout_s: float = 3.0) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as session:
        for _ in range(count):
            await poller.round(session)


def test_reports_are_kept_and_changes_told_once(rig):
    async def test(rig) -> None:
        told = []
        rig.server.on("GET", "/progress", {"state": "waiting", "iteration": 1, "time": "t1"})
        rig.server.on("GET", "/progress", {"state": "waiting", "iteration": 1, "time": "t2"})  # only its time
        rig.server.on("GET", "/progress", {"state": "waiting", "iteration": 2, "time": "t3"})
        poller = Poller(lambda: [head()], told.append, told.append, port=rig.server.port, interval_s=0)
        assert poller.get(KEY) is None
        await rounds(poller)
        assert told == [KEY]
        found = poller.get(KEY)
        assert (found.pod_uid, found.report["iteration"]) == ("u1", 1)
        assert found.time.tzinfo is not None
        await rounds(poller)
        assert told == [KEY]
        assert poller.get(KEY).report["time"] == "t2"
        await rounds(poller)
        assert told == [KEY, KEY]

    rig(test)


def test_what_a_head_does_is_told_apart_from_how_far_it_is(rig):
    async def test(rig) -> None:
        changed, progressed = [], []
        for state, done in (("waiting", 0), ("training", 0), ("training", 1), ("training", 1), ("done", 1)):
            rig.server.on("GET", "/progress", {"state": state, "iteration": done})
        poller = Poller(lambda: [head()], changed.append, progressed.append, port=rig.server.port, interval_s=0)
        seen = []
        for _ in range(5):
            await rounds(poller)
            seen.append((len(changed), len(progressed)))
            await asyncio.sleep(0.05)  # one that trains is asked again after a fortieth of a second
        assert seen == [(1, 0), (2, 0), (2, 1), (2, 1), (3, 1)]

    rig(test)


def test_another_pod_is_told_and_a_gone_one_forgotten(rig):
    async def test(rig) -> None:
        told, pods = [], [head("u1")]
        rig.server.on("GET", "/progress", {"state": "starting"})
        poller = Poller(lambda: pods, told.append, told.append, port=rig.server.port, interval_s=0)
        await rounds(poller)
        pods[:] = [head("u2")]
        await rounds(poller)
        assert told == [KEY, KEY]
        assert poller.get(KEY).pod_uid == "u2"
        pods.clear()
        await rounds(poller)
        assert poller.get(KEY) is None

    rig(test)


def test_a_head_that_is_asked_in_vain_is_told_once_with_the_time_of_the_first_question(rig):
    async def test(rig) -> None:
        told = []
        rig.server.on("GET", "/progress", {}, status=503)
        poller = Poller(lambda: [head()], told.append, told.append, port=rig.server.port, interval_s=0)
        await rounds(poller)
        first = poller.get(KEY)
        assert (first.pod_uid, first.report, told) == ("u1", None, [KEY])
        await rounds(poller)
        assert poller.get(KEY) == first and told == [KEY]
        rig.server.on("GET", "/progress", {"state": "waiting"})
        await rounds(poller, 2)
        assert poller.get(KEY).report == {"state": "waiting"} and told == [KEY, KEY]

    rig(test)


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_heads_the_newest_that_stays_is_asked(rig, order):
    async def test(rig) -> None:
        old, new, going = head("old"), head("new"), head("going")
        for pod, hour in ((old, 1), (new, 2), (going, 3)):
            pod["metadata"]["creationTimestamp"] = f"2026-01-01T{hour:02}:00:00Z"
        going["metadata"]["deletionTimestamp"] = "2026-01-01T04:00:00Z"
        rig.server.on("GET", "/progress", {"state": "training"})
        pods = [old, new, going][::order]
        poller = Poller(lambda: pods, lambda key: None, lambda key: None, port=rig.server.port, interval_s=0)
        await rounds(poller)
        assert poller.get(KEY).pod_uid == "new"

    rig(test)


def test_only_running_heads_are_asked(rig):
    async def test(rig) -> None:
        pods = [head(phase="Pending"), head(component="worker"), head(address=""), head(job="")]
        await rounds(Poller(lambda: pods, lambda key: None, lambda key: None, port=rig.server.port, interval_s=0))
        assert rig.server.requests == []

    rig(test)


def test_what_is_no_report_is_passed_over_and_the_last_one_stays(rig):
    async def test(rig) -> None:
        async def huge(*_):
            return web.Response(text=json.dumps({"x": "y" * (LARGEST_REPORT + 1)}))

        async def text(*_):
            return web.Response(text="<html>")

        async def deep(*_):
            return web.Response(text="[" * 30_000)

        async def elsewhere(*_):
            raise web.HTTPFound("/secrets")

        rig.server.on("GET", "/progress", {"iteration": 1}, huge, text, deep, elsewhere, ["list"])
        rig.server.on("GET", "/progress", {"message": "broken"}, status=500)
        told = []
        poller = Poller(lambda: [head()], told.append, told.append, port=rig.server.port, interval_s=0)
        await rounds(poller, 7)
        assert len(rig.server.asked("GET", "/progress")) == 7
        assert rig.server.asked("GET", "/secrets") == []
        assert told == [KEY]
        assert poller.get(KEY).report == {"iteration": 1}

    rig(test)


def test_not_a_number_becomes_null(rig):
    async def test(rig) -> None:
        async def nan(*_):
            return web.Response(text='{"loss": NaN, "reward": -Infinity}')

        rig.server.on("GET", "/progress", nan)
        poller = Poller(lambda: [head()], lambda key: None, lambda key: None, port=rig.server.port, interval_s=0)
        await rounds(poller)
        assert poller.get(KEY).report == {"loss": None, "reward": None}

    rig(test)


def test_a_silent_head_delays_the_others_no_longer_than_the_limit(rig):
    async def test(rig) -> None:
        asked = []

        async def answer(*_):
            asked.append(1)
            if len(asked) == 1:
                await asyncio.sleep(60)
            return web.json_response({"iteration": 1})

        rig.server.on("GET", "/progress", answer)
        told = []
        pods = [head(str(n), job=f"j{n}") for n in range(20)]
        poller = Poller(lambda: pods, told.append, told.append, port=rig.server.port, interval_s=0, concurrency=4)
        start = time.monotonic()
        await rounds(poller)
        assert sum(poller.get(("ns", f"j{n}")).report is not None for n in range(20)) == 19
        assert len(told) == 20
        assert time.monotonic() - start < 30

    rig(test)


def test_a_head_that_trains_is_asked_less_often_where_many_do(rig):
    async def test(rig) -> None:
        now = [0.0]
        state = {"state": "training"}
        rig.server.on("GET", "/progress", lambda *_: answered(state))
        pods = [head(str(n), job=f"j{n}") for n in range(int(TRAINING_PER_S * 8))]
        poller = Poller(
            lambda: pods, lambda key: None, lambda key: None, port=rig.server.port, interval_s=5, clock=lambda: now[0]
        )

        async def asked_at(moment: float) -> int:
            now[0] = moment
            before = len(rig.server.requests)
            await rounds(poller, timeout_s=15)
            return len(rig.server.requests) - before

        assert await asked_at(0) == len(pods)  # at once, while nothing is known of them
        assert await asked_at(5.1) == 0
        assert await asked_at(8.1) == len(pods)
        state["state"] = "waiting"
        assert await asked_at(16.2) == len(pods)
        assert await asked_at(21.3) == len(pods)  # to see at once when training begins

    rig(test)


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ({}, {}),
        ({"a": 10}, {"a": 5}),
        ({"a": 400}, {"a": 10}),
        ({"a": 100, "b": 100}, {"a": 5, "b": 5}),
        ({"a": 200, "b": 200}, {"a": 10, "b": 10}),
        ({"a": 10_000, "b": 5}, {"a": 10_000 / 39, "b": 5}),  # of 40 a second b wants one
        ({"a": 10_000, "b": 400, "c": 50}, {"a": 10_000 / 15, "b": 400 / 15, "c": 5}),
    ],
)
def test_namespaces_share_the_questions(heads: dict[str, int], expected: dict[str, float]):
    assert pauses(heads, 5.0) == pytest.approx(expected)
    assert sum(count / pauses(heads, 5.0)[each] for each, count in heads.items()) <= TRAINING_PER_S + 1e-9


def test_silent_heads_of_one_namespace_do_not_delay_those_of_another(rig):
    async def test(rig) -> None:
        answering, left = head("b", job="b", namespace="small"), asyncio.Event()
        asked = []

        async def answer(*_):
            asked.append(1)
            if len(asked) <= 8:  # the first ones say nothing until the other's has been asked
                await asyncio.wait_for(left.wait(), 10)
            return web.json_response({"state": "waiting"})

        rig.server.on("GET", "/progress", answer)
        pods = [*(head(str(n), job=f"j{n}", namespace="crowd") for n in range(300)), answering]
        told = []

        def changed(key) -> None:
            told.append(key)
            if key[0] == "small":
                left.set()

        poller = Poller(lambda: pods, changed, changed, port=rig.server.port, interval_s=5, concurrency=8)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.5)) as session:
            await poller.round(session)
        assert told.index(("small", "b")) < 20, "it came in its turn, not after the 300"

    rig(test)


def test_a_silent_head_is_not_asked_twice_at_a_time_and_a_new_one_at_once(rig):
    async def test(rig) -> None:
        hold = asyncio.Event()

        async def silent(*_):
            await hold.wait()
            return web.json_response({})

        rig.server.on("GET", "/progress", silent)
        pods = [head("u1")]
        poller = Poller(lambda: pods, lambda key: None, lambda key: None, port=rig.server.port, interval_s=0)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(poller.round(session))
                await asyncio.sleep(0.05)
            assert len(rig.server.requests) == 1
            pods[:] = [head("u2")]
            group.create_task(poller.round(session))
            await asyncio.sleep(0.05)
            assert len(rig.server.requests) == 2
            hold.set()

    rig(test)


async def answered(report):
    return web.json_response(report)


@pytest.mark.parametrize(("address", "host"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
def test_the_address_of_a_head_may_be_of_ipv6(address: str, host: str):
    assert url_of(head(address=address), 8080) == f"http://{host}:8080/progress"
