"""The client against a real HTTP server: what it sends, and what it makes of answers."""

from __future__ import annotations

import pytest
from aiohttp import web

from reef_operator.connection import client as client_module
from reef_operator.connection.client import ApiError, Client, path_of, seconds
from reef_operator.model import Server

PODS = "/api/v1/namespaces/ns/pods"
JOBS = "/apis/batch/v1/namespaces/ns/jobs"


def test_paths():
    assert path_of("Pod", None) == "/api/v1/pods"
    assert path_of("Job", "ns", "j") == f"{JOBS}/j"
    assert path_of("RLTrainingJob", "ns", "j", "status") == "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs/j/status"


def test_get_knows_nothing_from_refusal(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{PODS}/there", {"metadata": {"name": "there"}})
        rig.server.on("GET", f"{PODS}/secret", {"reason": "Forbidden", "message": "you may not"}, status=403)
        assert await rig.client.get("Pod", "ns", "there") == {"metadata": {"name": "there"}}
        assert await rig.client.get("Pod", "ns", "absent") is None
        with pytest.raises(ApiError, match="you may not") as refused:
            await rig.client.get("Pod", "ns", "secret")
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        assert rig.answered == [("get", "200"), ("get", "404"), ("get", "403")]

    rig(test)


def test_lists_come_in_pages(rig):
    async def test(rig) -> None:
        first = {"items": [{"n": 1}], "metadata": {"resourceVersion": "7", "continue": "more"}}
        rig.server.on("GET", PODS, first, {"items": [{"n": 2}], "metadata": {"resourceVersion": "7"}})
        assert await rig.client.list("Pod", "ns", "a=b") == [{"n": 1}, {"n": 2}]
        queries = [each.query for each in rig.server.requests]
        assert [query.get("continue") for query in queries] == [None, "more"]
        assert all(query["labelSelector"] == "a=b" and int(query["limit"]) > 0 for query in queries)

    rig(test)


def test_a_page_that_is_too_long_is_asked_for_in_smaller_ones(rig, monkeypatch):
    async def test(rig) -> None:
        monkeypatch.setattr(client_module, "PAGE_BYTES", 2000)
        objects = [{"n": number, "text": "x" * 500} for number in range(60)]

        async def page(request, seen):
            start, limit = int(seen.query.get("continue", 0)), int(seen.query["limit"])
            more = {"continue": str(start + limit)} if start + limit < len(objects) else {}
            return web.json_response({"items": objects[start : start + limit], "metadata": more})

        rig.server.on("GET", PODS, page)
        assert await rig.client.list("Pod", "ns") == objects
        limits = [int(request.query["limit"]) for request in rig.server.requests]
        assert limits[:3] == [50, 10, 2] and set(limits[2:]) == {2}
        objects[3]["text"] = "x" * 5000  # one alone is taken however long it is
        assert await rig.client.list("Pod", "ns") == objects

    rig(test)


def test_an_object_that_cannot_be_read_is_left_out_and_counted(rig, watch_stream):
    async def test(rig) -> None:
        def keep(found):
            return {"name": found["metadata"]["name"]}

        items = [{"metadata": {"name": "a"}}, {"metadata": None}, {"metadata": {"name": "b"}}]
        rig.server.on("GET", PODS, {"items": items, "metadata": {}})
        rig.server.on("GET", PODS, watch_stream(*({"type": "ADDED", "object": item} for item in items)))
        kept = [item async for page in rig.client.pages("Pod", "ns", keep=keep) for item in page.items]
        told = [event["object"] async for event in rig.client.watch("Pod", "ns", "", "1", keep=keep)]
        assert kept == told == [{"name": "a"}, {"name": "b"}]
        assert rig.skipped == ["Pod", "Pod"]

    rig(test)


def test_what_is_no_json_is_a_refusal(rig):
    async def test(rig) -> None:
        async def page(*_):
            return web.Response(text="<html>")

        rig.server.on("GET", PODS, page)
        rig.server.on("GET", f"{PODS}/p", page)
        for asking in (rig.client.list("Pod", "ns"), rig.client.get("Pod", "ns", "p")):
            with pytest.raises(ApiError, match="not valid JSON"):
                await asking

    rig(test)


def test_create_tells_what_is_there_already(rig):
    async def test(rig) -> None:
        rig.server.on("POST", PODS, {"made": True}, status=201)
        rig.server.on("POST", JOBS, {"reason": "AlreadyExists"}, status=409)
        assert await rig.client.create("Pod", "ns", {"kind": "Pod"}) == {"made": True}
        assert await rig.client.create("Job", "ns", {"kind": "Job"}) is None
        quota = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'
        rig.server.on("POST", "/api/v1/namespaces/ns/configmaps", {"reason": "Conflict", "message": quota}, status=409)
        with pytest.raises(ApiError, match="resourcequotas"):
            await rig.client.create("ConfigMap", "ns", {"kind": "ConfigMap"})

    rig(test)


def test_patches_are_merge_patches_and_name_the_subresource(rig):
    async def test(rig) -> None:
        rig.server.on("PATCH", f"{JOBS}/j/status", {"ok": 1})
        assert await rig.client.patch("Job", "ns", "j", {"status": None}, subresource="status") == {"ok": 1}
        (request,) = rig.server.requests
        assert request.headers["Content-Type"] == "application/merge-patch+json"
        assert request.body == {"status": None}

    rig(test)


def test_deletions_name_the_uid_and_take_what_is_owned(rig):
    async def test(rig) -> None:
        rig.server.on("DELETE", f"{JOBS}/j", {"kind": "Status"})
        assert await rig.client.delete("Job", "ns", "j", "u1", foreground=True)
        assert await rig.client.delete("Job", "ns", "j", "u1")
        assert not await rig.client.delete("Job", "ns", "absent", "u1")
        rig.server.on("DELETE", f"{JOBS}/other", {"reason": "Conflict"}, status=409)
        assert not await rig.client.delete("Job", "ns", "other", "u1")
        bodies = [each.body for each in rig.server.requests]
        assert all(body["preconditions"] == {"uid": "u1"} for body in bodies)
        assert [body["propagationPolicy"] for body in bodies[:2]] == ["Foreground", "Background"]

    rig(test)


def test_what_may_pass_is_tried_again_after_the_time_that_the_server_asks_for(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{PODS}/p", {"message": "busy"}, status=429, headers={"Retry-After": "0"})
        rig.server.on("GET", f"{PODS}/p", {"message": "down"}, status=503, headers={"Retry-After": "0"})
        rig.server.on("GET", f"{PODS}/p", {"ok": 1})
        assert await rig.client.get("Pod", "ns", "p") == {"ok": 1}
        assert [code for _, code in rig.answered] == ["429", "503", "200"]

    rig(test)


def test_what_does_not_pass_is_raised_and_a_refusal_is_not_repeated(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{PODS}/p", {"message": "down"}, status=503, headers={"Retry-After": "0"})
        with pytest.raises(ApiError, match="down"):
            await rig.client.get("Pod", "ns", "p")
        assert len(rig.server.requests) == 4
        rig.server.on("POST", PODS, {"message": "exceeded quota"}, status=403)
        with pytest.raises(ApiError, match="exceeded quota"):
            await rig.client.create("Pod", "ns", {})
        assert len(rig.server.requests) == 5

    rig(test)


def test_who_may_not_write_any_more_sends_no_change_nor_repeats_one(rig):
    async def test(rig) -> None:
        answers = iter([True, False, False])
        client = Client(rig.client._credentials, may_write=lambda: next(answers))
        async with client:
            rig.server.on("POST", PODS, {"message": "down"}, status=503, headers={"Retry-After": "0"})
            rig.server.on("GET", f"{PODS}/p", {"ok": 1})
            with pytest.raises(ApiError, match="another operator may be the leader"):
                await client.create("Pod", "ns", {})
            with pytest.raises(ApiError, match="another operator may be the leader"):
                await client.delete("Pod", "ns", "p", "u")
            assert await client.get("Pod", "ns", "p") == {"ok": 1}
        assert [each.method for each in rig.server.requests] == ["POST", "GET"]

    rig(test)


def test_credentials_are_read_again_when_the_server_refuses_them(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{PODS}/p", {"message": "expired"}, status=401)
        rig.server.on("GET", f"{PODS}/p", {"ok": 1})
        assert await rig.client.get("Pod", "ns", "p") == {"ok": 1}
        tokens = [each.headers["Authorization"] for each in rig.server.requests]
        assert tokens == ["Bearer token-1", "Bearer token-2"]

    rig(test)


def test_not_a_number_is_never_sent(rig):
    async def test(rig) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            await rig.client.create("Pod", "ns", {"reward": float("nan")})

    rig(test)


def test_half_a_character_is_sent_as_a_question_mark_and_whole_ones_as_they_are(rig):
    async def test(rig) -> None:
        rig.server.on("POST", PODS, {}, status=201)
        await rig.client.create("Pod", "ns", {"message": "a\ud800b \u00e9 \U0001f41f", "key\udfff": 1})
        assert rig.server.requests[0].body == {"message": "a?b \u00e9 \U0001f41f", "key?": 1}

    rig(test)


def test_versions_of_clouds(rig):
    async def test(rig) -> None:
        rig.server.on("GET", "/version", {"major": "1", "minor": "28+"})
        assert await rig.client.server() == Server(major=1, minor=28)

    rig(test)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("2", 2.0), ("-1", 0.0), ("9999", 30.0), ("Wed, 21 Oct 2015 07:28:00 GMT", None)],
)
def test_retry_after(text, expected):
    assert seconds(text) == expected
