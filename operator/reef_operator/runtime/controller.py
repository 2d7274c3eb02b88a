"""Handles one job at a time: observe it, call `reconcile`, carry out the plan. Nothing is decided here."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from reef_operator import names
from reef_operator.builders.merging import compact, merge_patch
from reef_operator.connection.client import ApiError, Client
from reef_operator.model import (
    Action,
    Child,
    Create,
    Delete,
    Freshness,
    Object,
    Plan,
)
from reef_operator.reading.situation import Situation
from reef_operator.runtime.event_recorder import EventRecorder
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.observer import Memory, Observer
from reef_operator.runtime.queue import Key, WorkQueue, log_fields
from reef_operator.runtime.watch import (
    Stores,
    is_leftover,
    is_owned_by,
    key_of,
    trim_job,
)

Decide = Callable[[Situation], Plan]

# These answers are not refusals: the object was just replaced, or the server is busy or gives none (0).
PASSING = {0, 404, 409, 429, 502, 503, 504}
NAME_TAKEN = "NameTaken"  # a 409 that stays until a person acts
# 409 answers that are refusals. A Conflict can come from a quota that other users exhaust at the same time.
REFUSED = {(Create, NAME_TAKEN), (Create, "Conflict")}

logger = logging.getLogger(__name__)


class Controller:
    """Carries out the plans of `decide`, one job at a time.

    Args:
        client: sends requests.
        stores: the caches of the watches.
        observer: makes observations of jobs.
        decide: the pure function that makes a plan.
        queue: the queue of keys.
        recorder: writes Events.
        metrics: counters.
        written: called with every job whose status was written, as the API server returned it.
    """

    def __init__(
        self,
        client: Client,
        stores: Stores,
        observer: Observer,
        *,
        decide: Decide,
        queue: WorkQueue,
        recorder: EventRecorder,
        metrics: Metrics,
        written: Callable[[Object], None] = lambda job: None,
    ) -> None:
        self._client = client
        self._stores = stores
        self._observer = observer
        self._decide = decide
        self._queue = queue
        self._recorder = recorder
        self._metrics = metrics
        self._written = written
        self._memories: dict[Key, Memory] = {}

    async def handle(self, key: Key) -> None:
        """Observe a job and carry out the plan for it.

        Raises:
            ApiError: an action failed; the status is still written if possible.
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
        """Whether a job was handled before."""
        return key in self._memories

    async def _handle(self, key: Key) -> None:
        job = self._stores.jobs.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):  # the garbage collector deletes its objects
            if job is None:
                self._queue.forget(key)
                if self._memories.pop(key, None) is not None:
                    self._stores.gone.add(key)
            return
        memory = self._memories.get(key)
        if memory is None or memory.uid != job["metadata"]["uid"]:
            memory = self._memories[key] = Memory(job["metadata"]["uid"])
        found = await self._with_document(job, memory)
        if found is not None:
            await self._reconcile(found, memory)

    async def _reconcile(self, job: Object, memory: Memory) -> None:
        await self._observer.read_unwatched(job, memory)
        decided = await self._decided(job, memory)
        if decided is None:
            return
        job, plan = decided
        fingerprint = self._observer.fingerprint(job)
        await self._carry_out(job, memory, plan)
        if plan.status is None and not plan.actions and names.SHORTENED in (self._stores.jobs.get(key_of(job)) or {}):
            rest_s = math.inf if plan.requeue_after_s is None else plan.requeue_after_s
            memory.idle = (fingerprint, time.monotonic() + rest_s)
            memory.unwatched, memory.read_again = {}, None

    async def _decided(self, job: Object, memory: Memory) -> tuple[Object, Plan] | None:
        """Return the job and its plan, from an observation as fresh as the plan requires; None for a deleted job."""
        situation, freshness = Situation(self._observer.known(job, memory)), Freshness.CACHED
        plan = self._decide(situation)
        while plan.freshness > freshness:
            freshness = plan.freshness
            observed = await self._observer.refreshed(situation.observed, memory, freshness)
            if observed is None:
                return None
            if observed is not situation.observed:
                situation = situation.renewed(observed)
                plan = self._decide(situation)
        return situation.observed.job, plan

    async def _with_document(self, job: Object, memory: Memory) -> Object | None:
        """Return the job with its document; None if it is deleted, or has finished and nothing is due."""
        if names.SHORTENED not in job:
            return job
        fingerprint, until = memory.idle
        left_s = until - time.monotonic()
        if left_s <= 0 or fingerprint != self._observer.fingerprint(job):
            return await self._observer.job_now(job)
        if left_s < math.inf:  # the timer may have fired a moment too early
            self._queue.add_after(key_of(job), left_s)
        return None

    async def _carry_out(self, job: Object, memory: Memory, plan: Plan) -> None:
        key, refused_before = key_of(job), set(memory.refused)
        failure = await self._apply_all(job, memory, plan)
        if plan.status is None or await self._write_status(job, plan.status):
            for event in plan.events:
                await self._recorder.record(job, event)
        if plan.requeue_after_s is not None:
            self._queue.add_after(key, plan.requeue_after_s)
        # The status reports which objects were refused. A message that only varies does not queue the job again:
        # the next try reports it after its delay.
        if memory.refused.keys() != refused_before:
            self._queue.add(key)  # not for a message that merely varies: the next try, after its pause, reports that
        if failure is not None:
            raise failure

    async def _apply_all(self, job: Object, memory: Memory, plan: Plan) -> ApiError | None:
        """Carry out the actions in order; return the first failure.

        After a failure no more objects are created (workers could take the resources that the head was refused), but
        objects are still deleted and changed.
        """
        failure: ApiError | None = None
        for action in plan.actions:
            if failure is not None and isinstance(action, Create):
                continue
            try:
                await self._apply(job, memory, action)
            except ApiError as error:
                failure = failure or error
                refused = error.status not in PASSING or (type(action), error.reason) in REFUSED
                if refused and not isinstance(action, Delete):
                    memory.refused[action.kind, action.name] = error.message  # type: ignore[index]
                if error.status == 0 or error.status >= 500:
                    break
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
                self._queue.add(key_of(job))  # the plan was made without this object
        else:
            made = await self._patch(job, memory, child, action.body)
        memory.refused.pop(child, None)
        if made is not None:
            self._observer.keep(memory, child, made)

    async def _adopt(self, namespace: str, kind: str, name: str, uid: str) -> Object | None:
        """Return the existing object of that name if it belongs to this job; None if it was deleted in the meantime.

        Raises:
            ApiError: it does not belong to this job.
        """
        found = await self._client.get(kind, namespace, name)
        if found is None or (is_owned_by(found, uid) and not found["metadata"].get("deletionTimestamp")):
            return found
        if is_leftover(found):
            raise ApiError(
                409, "Leftover", f"{kind} {name} is being deleted, or belongs to an earlier job of this name"
            )
        raise ApiError(
            409, NAME_TAKEN, f"{kind} {name} exists and does not belong to this job; delete it or rename the job"
        )

    async def _patch(self, job: Object, memory: Memory, child: Child, body: Object) -> Object:
        namespace, (kind, name) = key_of(job)[0], child
        known = self._observer.children(job, memory).get(child)
        if known is not None:  # not another object that has the name now
            body = {**body, "metadata": {**(body.get("metadata") or {}), "uid": known["metadata"]["uid"]}}
        return await self._client.patch(kind, namespace, name, body)

    async def _write_status(self, job: Object, status: Object) -> bool:
        """Replace the status; return False if the job has changed since it was observed, and queue it again."""
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
            # True: the status was written, but the answer was lost.
            return now is not None and now.get("status") == compact(status)
        self._stores.jobs.put(trim_job(found))
        self._written(found)
        return True
