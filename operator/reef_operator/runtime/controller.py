"""One key at a time: look, let `reconcile` decide, do it. Nothing here decides anything about a job."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from reef_operator import names
from reef_operator.builders.merging import compact, merge_patch
from reef_operator.connection.client import ApiError, Client
from reef_operator.model import (
    Action,
    Child,
    ChildKind,
    Create,
    Delete,
    Object,
    Observed,
    Plan,
    Progress,
    Server,
    Settings,
)
from reef_operator.runtime.events import EventRecorder
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.queue import Key, WorkQueue, log_fields
from reef_operator.runtime.watch import (
    Stores,
    is_leftover,
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

Decide = Callable[[Observed], Plan]

ENDED = {"Succeeded", "Failed", "Invalid"}
FEW_PODS = 10
PASSING = {404, 409, 429}  # nothing is refused: the object was just replaced, or the server is busy
NAME_TAKEN = "NameTaken"  # this 409 does not pass by itself
TOLD = {(Create, NAME_TAKEN), (Create, "Conflict")}  # the latter is a quota's that others use up at the same time

logger = logging.getLogger(__name__)


@dataclass
class Memory:
    """What is known of one job beside the stores; made anew when the operator starts."""

    uid: str  # of the job
    unwatched: dict[Child, Object] = field(default_factory=dict)
    read_again: float | None = None  # when `unwatched` is to be read again; None: it was never read
    refused: dict[Child, str] = field(default_factory=dict)
    rests: tuple[str, float] = ("", 0.0)  # what a job that has ended looked like when nothing was to do, and until when


class Controller:
    """Brings the cluster to what `decide` wants, one job at a time.

    Args:
        client: requests.
        stores: what watches have told.
        progress: what the poller knows of a job's head.
        decide: the pure part.
        settings: of the installation.
        queue: where keys come from.
        recorder: writes Events.
        metrics: counts.
        written: told every job whose status was written, as the API server has it now.
        reread_s: objects that are not watched are read again so often, at the latest.
    """

    def __init__(
        self,
        client: Client,
        stores: Stores,
        progress: Callable[[Key], Progress | None],
        *,
        decide: Decide,
        settings: Settings,
        queue: WorkQueue,
        recorder: EventRecorder,
        metrics: Metrics,
        written: Callable[[Object], None] = lambda job: None,
        reread_s: float = 240.0,
    ) -> None:
        self._server = Server()
        self._client = client
        self._stores = stores
        self._progress = progress
        self._decide = decide
        self._settings = settings
        self._queue = queue
        self._recorder = recorder
        self._metrics = metrics
        self._written = written
        self._reread_s = reread_s
        self._memories: dict[Key, Memory] = {}

    async def handle(self, key: Key) -> None:
        """Look at a job and do what is to be done.

        Raises:
            ApiError: something could not be done; the status that could be written is.
        """
        started = time.perf_counter()
        try:
            await self._handle(key)
        except Exception as error:
            self._metrics.errors.labels(error.reason if isinstance(error, ApiError) else type(error).__name__).inc()
            raise
        finally:
            self._metrics.reconcile.observe(time.perf_counter() - started)

    def knows(self, key: Key) -> bool:
        """Whether a job was looked at before."""
        return key in self._memories

    def renew(self, server: Server) -> None:
        """Take note of what the API server can do, as it may have been upgraded."""
        self._server = server

    async def _handle(self, key: Key) -> None:
        job = self._stores.jobs.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):  # its owner references do the rest
            if job is None:
                self._queue.forget(key)
                if self._memories.pop(key, None) is not None:
                    self._stores.gone.add(key)
            return
        memory = self._memories.get(key)
        if memory is None or memory.uid != job["metadata"]["uid"]:
            memory = self._memories[key] = Memory(job["metadata"]["uid"])
        whole = await self._whole(job, memory)
        if whole is not None:
            await self._bring_about(whole, memory)

    async def _bring_about(self, job: Object, memory: Memory) -> None:
        await self._load(job, memory)
        plan = self._decide(self._known(job, memory))
        decisive = plan.is_decisive(job)
        # Caches may be late, and one later than another: a deleted job would be made again, and a job of before
        # its last edit, beside what was made after it, looks like an edit.
        if decisive or (plan.actions and not plan.certain):
            now = await self._job_now(job)
            if now is None:
                return
            has_changed = now["metadata"].get("resourceVersion") != job["metadata"].get("resourceVersion")
            job = now
            if not decisive and has_changed:
                plan = self._decide(self._known(job, memory))
                decisive = plan.is_decisive(job)
            if decisive:
                plan = await self._decided_afresh(job, memory, plan)
        look = self._look(job)
        await self._carry_out(job, memory, plan)
        if plan.status is None and not plan.actions and names.SHORTENED in (self._stores.jobs.get(key_of(job)) or {}):
            rest_s = math.inf if plan.requeue_after_s is None else plan.requeue_after_s
            memory.rests = (look, time.monotonic() + rest_s)
            memory.unwatched, memory.read_again = {}, None

    async def _decided_afresh(self, job: Object, memory: Memory, plan: Plan) -> Plan:
        """The plan once the API server has confirmed what caches say.

        Lists take it long where there are many jobs. Most of the time what is known is asked for by name.
        """
        whole = plan.needs_absence(job)
        plan = self._decide(await self._fresh(job, memory, whole=whole))
        if not whole and plan.needs_absence(job):
            plan = self._decide(await self._fresh(job, memory, whole=True))
        return plan

    async def _whole(self, job: Object, memory: Memory) -> Object | None:
        """The job with its document; None when there is nothing to do: it is gone, or has ended and rests."""
        if names.SHORTENED not in job:
            return job
        look, until = memory.rests
        return None if look == self._look(job) and time.monotonic() < until else await self._job_now(job)

    def _look(self, job: Object) -> str:
        """A hash of the states of a job, its watched children and its pods."""
        key = key_of(job)
        beside = [found for store in (*self._stores.owned.values(), self._stores.pods) for found in store.of_job(key)]
        states = [[each["metadata"].get(part) for part in ("uid", "resourceVersion")] for each in (job, *beside)]
        return hashlib.sha256(json.dumps(states).encode()).hexdigest()

    async def _carry_out(self, job: Object, memory: Memory, plan: Plan) -> None:
        key, refused_before = key_of(job), set(memory.refused)
        failure = await self._apply_all(job, memory, plan)
        if plan.status is None or await self._write_status(job, plan.status):
            for event in plan.events:
                await self._recorder.record(job, event)
        if plan.requeue_after_s is not None:
            self._queue.add_after(key, plan.requeue_after_s)
        if memory.refused.keys() != refused_before:  # what was refused is part of what the next look sees
            self._queue.add(key)  # words that merely vary are seen with the next try, after its pause
        if failure is not None:
            raise failure

    def _known(self, job: Object, memory: Memory) -> Observed:
        """What the caches say."""
        return self._observed(job, memory, self._children(job, memory), self._stores.pods.of_job(key_of(job)))

    def _observed(self, job: Object, memory: Memory, children: dict[Child, Object], pods: list[Object]) -> Observed:
        return Observed(
            job=job,
            children=children,
            pods=tuple(pod for pod in pods if not is_older(pod, job)),
            progress=self._progress(key_of(job)),
            now=datetime.now(UTC),
            fresh_token=secrets.token_hex(32),
            refused=dict(memory.refused),
            server=self._server,
            settings=self._settings,
        )

    def _children(self, job: Object, memory: Memory) -> dict[Child, Object]:
        watched: dict[Child, Object] = {
            (kind, found["metadata"]["name"]): found
            for kind, store in self._stores.owned.items()
            for found in store.of_job(key_of(job))
            if is_owned_by(found, job["metadata"]["uid"])
        }
        return memory.unwatched | watched

    async def _load(self, job: Object, memory: Memory) -> None:
        """Read the children that are not watched, now and then, in case someone has changed them.

        Each job has its own time for it: all at once, they would hold up everything else.
        """
        phase = (job.get("status") or {}).get("phase")
        if memory.read_again is not None and (phase in ENDED or time.monotonic() < memory.read_again):
            return
        namespace, name = key_of(job)
        found: dict[Child, Object] = {}
        if phase:  # one that was never taken up has none
            for child in unwatched_children(name):
                body = await self._client.get(child[0], namespace, child[1])
                if body is not None and is_owned_by(body, job["metadata"]["uid"]):
                    found[child] = trim_whole(body)
        memory.unwatched = found
        memory.read_again = time.monotonic() + self._reread_s * random.uniform(0.5, 1.0)  # noqa: S311 (spread)

    async def _job_now(self, job: Object) -> Object | None:
        """The job from the API server; None when it is gone or going."""
        found = await self._client.get("RLTrainingJob", *key_of(job))
        if found is None or found["metadata"]["uid"] != job["metadata"]["uid"]:
            return None
        now = whole_job(found)
        self._stores.jobs.put(trim_job(found))
        return None if now["metadata"].get("deletionTimestamp") else now

    async def _fresh(self, job: Object, memory: Memory, *, whole: bool) -> Observed:
        """The job's children and pods from the API server instead of the caches.

        Args:
            job: as it is now.
            memory: of the job.
            whole: it counts whether there is a pod that the caches do not know yet.
        """
        owned, found = await asyncio.gather(
            self._owned_now(job, memory, whole=whole), self._pods_now(key_of(job), whole=whole)
        )
        children = dict(memory.unwatched)
        for kind, child in owned:
            if is_owned_by(child, job["metadata"]["uid"]):
                children[kind, child["metadata"]["name"]] = trim_owner_of_pods(child)
        return self._observed(job, memory, children, [trim_pod(pod) for pod in found])

    async def _owned_now(self, job: Object, memory: Memory, *, whole: bool) -> list[tuple[ChildKind, Object]]:
        """The watched children; by their names, as for a list the API server reads those of all jobs."""
        namespace, name = key_of(job)
        if whole:
            kinds, selector = list(self._stores.owned), names.selector(names.labels(name))
            lists = await asyncio.gather(*(self._client.list(kind, namespace, selector) for kind in kinds))
            return [(kind, child) for kind, found in zip(kinds, lists, strict=True) for child in found]
        known = sorted(self._children(job, memory).keys() - memory.unwatched.keys())  # what was made is known at once
        found = await asyncio.gather(*(self._client.get(kind, namespace, child) for kind, child in known))
        return [(kind, child) for (kind, _), child in zip(known, found, strict=True) if child is not None]

    async def _pods_now(self, job: Key, *, whole: bool) -> list[Object]:
        """The pods; by their names too, where they are few."""
        known = [key_of(pod)[1] for pod in self._stores.pods.of_job(job)]
        if whole or len(known) > FEW_PODS:
            return await self._client.list("Pod", job[0], names.selector(names.labels(job[1])))
        found = await asyncio.gather(*(self._client.get("Pod", job[0], name) for name in known))
        return [pod for pod in found if pod is not None]

    async def _apply_all(self, job: Object, memory: Memory, plan: Plan) -> ApiError | None:
        """Do the actions in their order; return the first failure.

        After a failure nothing more is made (workers would take the room that the head was refused), but things are
        still removed and changed.
        """
        failure: ApiError | None = None
        for action in plan.actions:
            if failure is not None and isinstance(action, Create):
                continue
            try:
                await self._apply(job, memory, action)
            except ApiError as error:
                failure = failure or error
                if error.status == 0 or error.status >= 500:
                    break
                told = error.status not in PASSING or (type(action), error.reason) in TOLD
                if told and not isinstance(action, Delete):
                    memory.refused[action.kind, action.name] = error.message  # type: ignore[index]
        wanted = {(action.kind, action.name) for action in plan.actions if not isinstance(action, Delete)}
        memory.refused = {child: why for child, why in memory.refused.items() if child in wanted}
        return failure

    async def _apply(self, job: Object, memory: Memory, action: Action) -> None:
        namespace, uid = key_of(job)[0], job["metadata"]["uid"]
        logger.info("%s %s %s", type(action).__name__.lower(), action.kind, action.name, extra=log_fields(key_of(job)))
        if isinstance(action, Delete):
            foreground = action.kind == "Job"
            await self._client.delete(action.kind, namespace, action.name, action.uid, foreground=foreground)
            memory.unwatched.pop((action.kind, action.name), None)  # type: ignore[arg-type]
            return
        child: Child = (action.kind, action.name)  # type: ignore[assignment]
        if isinstance(action, Create):
            made = await self._client.create(action.kind, namespace, action.body)
            if made is None:
                made = await self._adopt(namespace, action.kind, action.name, uid)
                self._queue.add(key_of(job))  # the plan was made without knowing it
        else:
            made = await self._patch(job, memory, child, action.body)
        memory.refused.pop(child, None)
        if made is not None:
            self._keep(memory, child, made)

    async def _adopt(self, namespace: str, kind: str, name: str, uid: str) -> Object | None:
        """The object that has the name already, if it is this job's; None if it went meanwhile.

        Raises:
            ApiError: it belongs to someone else.
        """
        found = await self._client.get(kind, namespace, name)
        if found is None or (is_owned_by(found, uid) and not found["metadata"].get("deletionTimestamp")):
            return found
        if is_leftover(found):
            raise ApiError(409, "Leftover", f"{kind} {name} is going, or of an earlier job of this name")
        raise ApiError(
            409, NAME_TAKEN, f"{kind} {name} exists and does not belong to this job; delete it or rename the job"
        )

    async def _patch(self, job: Object, memory: Memory, child: Child, body: Object) -> Object:
        namespace, (kind, name) = key_of(job)[0], child
        known = self._children(job, memory).get(child)
        if known is not None:  # not another object that has taken the name
            body = {**body, "metadata": {**(body.get("metadata") or {}), "uid": known["metadata"]["uid"]}}
        return await self._client.patch(kind, namespace, name, body)

    def _keep(self, memory: Memory, child: Child, found: Object) -> None:
        """Know at once what was written, before a watch tells."""
        if child[0] in self._stores.owned:
            self._stores.owned[child[0]].put(trim_owner_of_pods(found))
        else:
            memory.unwatched[child] = trim_whole(found)

    async def _write_status(self, job: Object, status: Object) -> bool:
        """Replace the status; False when the job has changed since it was looked at, and will be looked at again."""
        change = merge_patch(job.get("status") or {}, compact(status))
        if not change:
            return True
        namespace, name = key_of(job)
        metadata = {key: job["metadata"][key] for key in ("uid", "resourceVersion") if key in job["metadata"]}
        body = {"metadata": metadata, "status": change}
        try:
            found = await self._client.patch("RLTrainingJob", namespace, name, body, subresource="status")
        except ApiError as error:
            if error.status == 404:
                return False
            if error.status != 409:
                raise
            now = await self._client.get("RLTrainingJob", namespace, name)
            if now is not None:
                self._stores.jobs.put(trim_job(now))
                self._queue.add(key_of(job))
            return now is not None and now.get("status") == compact(status)  # written, and the answer was lost
        self._stores.jobs.put(trim_job(found))
        self._written(found)
        return True
