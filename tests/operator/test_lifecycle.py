"""Kopf itself, against a real HTTP server: what it asks for, and that it ends what runs beside it."""

from __future__ import annotations

import asyncio

import kopf

from reef_operator.lifecycle import kopf_settings, registry

RESOURCES = [  # Kopf wants to know of them, and does not watch them
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
    ("", "namespaces", "Namespace"),
]


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


def test_kopf_asks_what_is_served_and_nothing_more_and_writes_nothing(rig, eventually):
    async def test(rig) -> None:
        discovery(rig.server)
        stop, ended = asyncio.Event(), asyncio.Event()

        async def login() -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=f"http://127.0.0.1:{rig.server.port}", token="t")

        async def end() -> None:
            ended.set()

        handlers, settings = registry(login, end), kopf_settings()
        running = kopf.operator(registry=handlers, settings=settings, clusterwide=True, standalone=True, stop_flag=stop)
        task = asyncio.create_task(running)
        try:
            await eventually(lambda: rig.server.asked("GET", "/apis/apiextensions.k8s.io/v1"))
            assert not ended.is_set()
        finally:
            stop.set()
            await task
        assert ended.is_set()
        assert {each.method for each in rig.server.requests} == {"GET"}  # no patch, no event
        asked = {each.path for each in rig.server.requests}
        assert all(path == "/api" or path == "/apis" or path.endswith("/v1") for path in asked), asked

    rig(test)
