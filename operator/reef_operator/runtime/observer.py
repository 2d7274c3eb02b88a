"""Observes one job: from the caches, or from the API server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from reef_operator import names
from reef_operator.connection.client import Client
from reef_operator.model import Child, ChildKind, Freshness, Object, Observed, Progress, Server, Settings
from reef_operator.reading.document import stored_document
from reef_operator.runtime.queue import Key
from reef_operator.runtime.watch import (
    Stores,
    children_for_applications,
    is_older,
    is_owned_by,
    key_of,
    trim_job,
    trim_owner_of_pods,
    trim_pod,
    trim_whole,
    unwatched_children,
    whole_job,
)

ENDED = {"Succeeded", "Failed", "Invalid"}
FEW_PODS = 10


@dataclass
class Memory:
    """What is known about one job in addition to the caches; empty when the operator starts."""

    uid: str  # of the job
    unwatched: dict[Child, Object] = field(default_factory=dict)
    read_again: float | None = None  # when `unwatched` is due to be read again; None: it was never read
    refused: dict[Child, str] = field(default_factory=dict)
    idle: tuple[str, float] = ("", 0.0)  # fingerprint of a finished job that needs nothing, and until when


class Observer:
    """Makes observations of jobs.

    Args:
        client: sends requests.
        stores: the caches of the watches.
        progress: returns the poller's result for a job's head.
        settings: settings of the installation.
        reread_s: maximum age of objects that are not watched, in seconds.
    """

    def __init__(
        self,
        client: Client,
        stores: Stores,
        progress: Callable[[Key], Progress | None],
        settings: Settings,
        *,
        reread_s: float = 240.0,
    ) -> None:
        self._server = Server()
        self._client = client
        self._stores = stores
        self._progress = progress
        self._settings = settings
        self._reread_s = reread_s

    def renew(self, server: Server) -> None:
        """Set the capabilities of the API server, which may have been upgraded."""
        self._server = server

    async def read_unwatched(self, job: Object, memory: Memory) -> None:
        """Read the children that are not watched again when they are due, because a person may have changed them.

        Each job has its own random time: reading the children of all jobs at once would delay all other work.
        """
        phase = (job.get("status") or {}).get("phase")
        if memory.read_again is not None and (phase in ENDED or time.monotonic() < memory.read_again):
            return
        # A new job, without a status, has no children yet.
        memory.unwatched = await self._unwatched_now(job) if phase else {}
        memory.read_again = time.monotonic() + self._reread_s * random.uniform(0.5, 1.0)  # noqa: S311 (spread)

    async def _unwatched_now(self, job: Object) -> dict[Child, Object]:
        name = key_of(job)[1]
        found = await self._existing(job, unwatched_children(name))
        document = stored_document(found.get(("ConfigMap", names.document(name)))) or job
        external = document["spec"].get("externalInput") if isinstance(document["spec"], Mapping) else None
        if not external:
            return found
        ingress = self._settings.ingress is not None and isinstance(external, Mapping) and "ingress" in external
        return found | await self._existing(job, children_for_applications(name, ingress=ingress))

    async def _existing(self, job: Object, children: Iterable[Child]) -> dict[Child, Object]:
        """Read children that are not watched, one after the other; return those that exist and belong to the job."""
        found: dict[Child, Object] = {}
        for child in children:
            body = await self._client.get(child[0], key_of(job)[0], child[1])
            if body is not None and is_owned_by(body, job["metadata"]["uid"]):
                found[child] = trim_whole(body)
        return found

    def known(self, job: Object, memory: Memory) -> Observed:
        """Return an observation from the caches."""
        return self._observed(job, memory, self.children(job, memory), self._stores.pods.of_job(key_of(job)))

    def children(self, job: Object, memory: Memory) -> dict[Child, Object]:
        """Return the known objects of a job."""
        watched: dict[Child, Object] = {
            (kind, found["metadata"]["name"]): found
            for kind, store in self._stores.owned.items()
            for found in store.of_job(key_of(job))
            if is_owned_by(found, job["metadata"]["uid"])
        }
        return memory.unwatched | watched

    def fingerprint(self, job: Object) -> str:
        """Return a hash of the cached versions of a job, its watched children and its pods."""
        key = key_of(job)
        beside = [found for store in (*self._stores.owned.values(), self._stores.pods) for found in store.of_job(key)]
        states = [[each["metadata"].get(part) for part in ("uid", "resourceVersion")] for each in (job, *beside)]
        return hashlib.sha256(json.dumps(states).encode()).hexdigest()

    def keep(self, memory: Memory, child: Child, found: Object) -> None:
        """Cache a written object before a watch reports it."""
        if child[0] in self._stores.owned:
            self._stores.owned[child[0]].put(trim_owner_of_pods(found))
        else:
            memory.unwatched[child] = trim_whole(found)

    async def job_now(self, job: Object) -> Object | None:
        """Read the job from the API server; None if it is deleted or being deleted."""
        found = await self._client.get("RLTrainingJob", *key_of(job))
        if found is None or found["metadata"]["uid"] != job["metadata"]["uid"]:
            return None
        now = whole_job(found)
        self._stores.jobs.put(trim_job(found))
        return None if now["metadata"].get("deletionTimestamp") else now

    async def refreshed(self, observed: Observed, memory: Memory, freshness: Freshness) -> Observed | None:
        """Return an observation that is at least this fresh; None if the job is deleted or being deleted.

        If the job alone has to be read and has not changed, this is `observed` itself.
        """
        job = observed.job
        if freshness is Freshness.ALL_READ:
            return await self._all_now(job, memory)
        now = await self.job_now(job)
        if now is None:
            return None
        unchanged = now["metadata"].get("resourceVersion") == job["metadata"].get("resourceVersion")
        return observed if unchanged else self.known(now, memory)

    async def _all_now(self, job: Object, memory: Memory) -> Observed | None:
        """Read the job and its known children and pods; None if the job is deleted or being deleted.

        Objects are read one by one, except if there are many pods: to list the pods of one job, an API server before
        1.31 reads the pods of all jobs.
        """
        now, owned, pods = await asyncio.gather(
            self.job_now(job), self._owned_now(job, memory), self._pods_now(key_of(job))
        )
        if now is None:
            return None
        children = dict(memory.unwatched)
        for kind, child in owned:
            if is_owned_by(child, job["metadata"]["uid"]):
                children[kind, child["metadata"]["name"]] = trim_owner_of_pods(child)
        return self._observed(now, memory, children, [trim_pod(pod) for pod in pods])

    async def _owned_now(self, job: Object, memory: Memory) -> list[tuple[ChildKind, Object]]:
        namespace = key_of(job)[0]
        known = sorted(self.children(job, memory).keys() - memory.unwatched.keys())
        found = await asyncio.gather(*(self._client.get(kind, namespace, child) for kind, child in known))
        return [(kind, child) for (kind, _), child in zip(known, found, strict=True) if child is not None]

    async def _pods_now(self, job: Key) -> list[Object]:
        known = [key_of(pod)[1] for pod in self._stores.pods.of_job(job)]
        if len(known) > FEW_PODS:
            return await self._client.list("Pod", job[0], names.selector(names.labels(job[1])))
        found = await asyncio.gather(*(self._client.get("Pod", job[0], name) for name in known))
        return [pod for pod in found if pod is not None]

    def _observed(self, job: Object, memory: Memory, children: dict[Child, Object], pods: list[Object]) -> Observed:
        own = [found["metadata"]["uid"] for (kind, _), found in children.items() if kind == "Job"]

        def is_of_this_job(pod: Object) -> bool:
            # a head in any case, as the clocks of two API servers may differ by more than passed between both
            return any(is_owned_by(pod, uid) for uid in own) or not is_older(pod, job)

        return Observed(
            job=job,
            children=children,
            pods=tuple(filter(is_of_this_job, pods)),
            progress=self._progress(key_of(job)),
            now=datetime.now(UTC),
            fresh_token=secrets.token_hex(32),
            refused=dict(memory.refused),
            server=self._server,
            settings=self._settings,
        )
