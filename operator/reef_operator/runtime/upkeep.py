"""Periodic work, every few minutes: list all jobs, and delete objects whose job is gone."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from itertools import islice

from reef_operator.connection.client import ApiError, Client
from reef_operator.connection.limits import Backoff
from reef_operator.model import Object, Server
from reef_operator.names import JOB_LABEL, MANAGED_BY_LABEL, document
from reef_operator.reading.pods import is_orphaned
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.queue import Key, Turns, Urgency, WorkQueue, log_fields
from reef_operator.runtime.watch import (
    Stores,
    children_for_applications,
    is_older,
    is_owned_by,
    job_of_label,
    key_of,
    trim_job,
    unwatched_children,
)

# Maximum number of deleted jobs whose objects are searched in one round, so that the next round starts in time.
SWEPT = 300

logger = logging.getLogger(__name__)


class Upkeep:
    """Lists all jobs, queues each of them, and deletes orphans.

    Args:
        client: sends requests.
        namespaces: watched namespaces; None stands for all of them.
        stores: the caches of the watches.
        queue: the queue of jobs.
        metrics: counters.
        begun: called at the start of a round with the capabilities of the API server.
        listed: called with every listed job, which the watch must have delivered too.
        ingresses: whether the operator makes Ingresses, and may read and delete them.
        interval_s: pause between two rounds.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str | None],
        stores: Stores,
        *,
        queue: WorkQueue,
        metrics: Metrics,
        begun: Callable[[Server], None] = lambda server: None,
        listed: Callable[[Object], None] = lambda job: None,
        ingresses: bool = False,
        interval_s: float = 240.0,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._stores = stores
        self._queue = queue
        self._metrics = metrics
        self._begun = begun
        self._listed = listed
        self._ingresses = ingresses
        self._interval_s = interval_s
        self._suspects: set[Key] = set()  # jobs whose children looked like orphans in the last round

    async def run(self) -> None:
        """Run a round at once and then periodically, until cancelled."""
        backoff = Backoff(first=1.0, limit=15.0)
        failures = 0
        while True:
            try:
                self._begun(await self._client.server())
                await self.resync()
                await self.sweep()
            except ApiError as error:
                failures += 1
                logger.warning("listing all jobs: %s", error)
                await asyncio.sleep(backoff.delay(failures))
            else:
                failures = 0
                await asyncio.sleep(self._interval_s * (0.9 + 0.2 * random.random()))  # noqa: S311

    async def resync(self) -> None:
        """Queue every job, and forget deleted jobs; an inaccessible namespace does not affect the others."""
        for namespace in self._namespaces:
            try:
                await self._resync(namespace)
            except ApiError as error:
                if error.status != 403 or namespace is None:
                    raise
                logger.warning("the jobs of namespace %s are not looked after: %s", namespace, error)
        self._metrics.resync.set_to_current_time()

    async def _resync(self, namespace: str | None) -> None:
        ghosts = self._stores.jobs.keys(namespace)
        async for page in self._client.pages("RLTrainingJob", namespace, keep=trim_job):
            for job in page.items:
                ghosts.discard(key_of(job))
                self._listed(job)
                self._stores.jobs.put(job)
                self._queue.add(key_of(job), Urgency.PROGRESS)
        for key in ghosts:
            ghost = self._stores.jobs.get(key)
            if ghost and await self._client.get("RLTrainingJob", *key) is None:  # a job may be younger than the list
                self._stores.jobs.remove(ghost)
                self._queue.add(key)

    async def sweep(self) -> None:
        """Delete Jobs, Deployments and orphaned pods of jobs that are gone, and their other objects.

        The garbage collector deletes them too, but not after a deletion with --cascade=orphan, and they hold GPUs. It
        has time until the next round. Namespaces take turns; what exceeds the limit of a round waits for the next.
        """
        suspects = {
            job_of_label(found)
            for store in self._stores.owned.values()
            for found in store.all()
            if not self._has_job(found)
        }
        suspects |= {job_of_label(pod) for pod in self._stores.pods.all() if not self._has_pod(pod)}
        before, self._suspects = self._suspects, suspects | self._stores.gone
        self._stores.gone = set()
        turns = Turns()
        for key in before:
            turns.add(key)
        for key in islice(iter(turns.pop, None), SWEPT):
            before.discard(key)
            try:
                if key[1] and (key in suspects or await self._has_document(key)):
                    await self._remove_orphans(key)
            except ApiError as error:
                logger.warning("cannot delete the objects of a deleted job: %s", error, extra=log_fields(key))
                self._suspects.add(key)
        self._suspects |= before
        self._metrics.sweep.set_to_current_time()

    def _has_job(self, found: Object) -> bool:
        job = self._stores.jobs.get(job_of_label(found))
        return job is not None and is_owned_by(found, job["metadata"]["uid"])

    def _has_pod(self, pod: Object) -> bool:
        job = self._stores.jobs.get(job_of_label(pod))
        return not is_orphaned(pod) or (job is not None and not is_older(pod, job))

    async def _has_document(self, key: Key) -> bool:
        """Whether a job that had ended before its deletion left objects; those without a watch are left together."""
        return await self._client.get("ConfigMap", key[0], document(key[1])) is not None

    async def _remove_orphans(self, key: Key) -> None:
        children: list[tuple[str, Object]] = [
            (kind, found) for kind, store in self._stores.owned.items() for found in store.of_job(key)
        ]
        # Whether a deleted job had a policy server is not known.
        for child in (*unwatched_children(key[1]), *children_for_applications(key[1], ingress=self._ingresses)):
            beside = await self._client.get(child[0], key[0], child[1])
            if beside is not None:
                children.append((child[0], beside))
        # Read after its children, because the job may have been created again.
        job = await self._client.get("RLTrainingJob", *key)
        uid = job["metadata"]["uid"] if job is not None else ""
        # Pods of an existing job may be among them.
        pods = (pod for pod in self._stores.pods.of_job(key) if is_orphaned(pod))
        children += [("Pod", pod) for pod in pods if job is None or is_older(pod, job)]
        for kind, found in children:
            if is_orphan(found, key, uid):
                name = found["metadata"]["name"]
                logger.warning("delete orphan %s %s", kind, name, extra={"namespace": key[0], "job": key[1]})
                if await self._client.delete(kind, key[0], name, found["metadata"]["uid"]):
                    self._metrics.orphans.inc()


def is_orphan(found: Object, job: Key, uid: str) -> bool:
    """Whether an object was made for a job and has no owner now: neither the current job nor another object.

    Args:
        found: the object.
        job: key of the job that it was made for.
        uid: uid of the current job of this name; empty if there is none.
    """
    metadata = found["metadata"]
    labels, owners = metadata.get("labels") or {}, metadata.get("ownerReferences") or []
    return (
        labels.get(MANAGED_BY_LABEL) == "reef-operator"
        and labels.get(JOB_LABEL) == job[1]
        and not metadata.get("deletionTimestamp")
        and all(owner["kind"] == "RLTrainingJob" and owner["uid"] != uid for owner in owners)
    )
