"""LIST and WATCH with a label selector: small caches of jobs, pods and children that follow the API server."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reef.api.limits import check_limits
from reef.errors import ConfigError
from reef_operator import names
from reef_operator.connection.client import NETWORK_ERRORS, ApiError, Client
from reef_operator.connection.limits import Backoff
from reef_operator.model import Child, ChildKind, Object
from reef_operator.reading.situation import FINISHED
from reef_operator.runtime.queue import Key

POD_LABELS = (names.JOB_LABEL, names.COMPONENT_LABEL, names.POOL_LABEL)
JOB_METADATA = (
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
)
# How long an answer in flight may contain a deleted object: longer than any request takes.
GONE_S = 300.0

logger = logging.getLogger(__name__)


class Store:
    """The last known state of objects of one kind, by key and by job.

    A deleted object does not return: the answer to an older request, such as a page of a list, may still contain it.

    Args:
        job_of: returns the key of the job that an object belongs to.
    """

    def __init__(self, job_of: Callable[[Object], Key]) -> None:
        self._job_of = job_of
        self._objects: dict[Key, Object] = {}
        self._by_job: dict[Key, dict[str, Object]] = {}
        self._gone: dict[str, float] = {}  # uid of each deleted object and when it was deleted, the earliest first

    def get(self, key: Key) -> Object | None:
        """Return the object with this namespace and name."""
        return self._objects.get(key)

    def of_job(self, job: Key) -> list[Object]:
        """Return the objects of a job, sorted by name."""
        found = self._by_job.get(job, {})
        return [found[name] for name in sorted(found)]

    def all(self) -> list[Object]:
        """Return all objects, as a new list."""
        return list(self._objects.values())

    def keys(self, namespace: str | None) -> set[Key]:
        """Return the keys of the objects in a namespace; None: in all of them."""
        return {key for key in self._objects if namespace in (None, key[0])}

    def put(self, found: Object) -> bool:
        """Store an object unless it was deleted or a newer state is stored; return whether this changed anything."""
        uid, now = found["metadata"].get("uid", ""), time.monotonic()
        if now - self._gone.get(uid, -math.inf) < GONE_S:
            return False
        key = key_of(found)
        before = self._objects.get(key)
        if before is not None and not newer(found, before):
            return False
        if before is not None:
            self._drop(key)
            if (replaced := before["metadata"].get("uid", "")) != uid:
                self._gone.setdefault(replaced, now)
        self._objects[key] = found
        self._by_job.setdefault(self._job_of(found), {})[key[1]] = found
        return True

    def remove(self, gone: Object) -> Object | None:
        """Remove a deleted object; return it if it was stored, None if another object has its name now."""
        uid, now = gone["metadata"].get("uid", ""), time.monotonic()
        while self._gone and next(iter(self._gone.values())) < now - GONE_S:
            del self._gone[next(iter(self._gone))]
        self._gone.setdefault(uid, now)
        found = self._objects.get(key_of(gone))
        return self._drop(key_of(gone)) if found is not None and found["metadata"].get("uid", "") == uid else None

    def _drop(self, key: Key) -> Object:
        found = self._objects.pop(key)
        siblings = self._by_job[self._job_of(found)]
        del siblings[key[1]]
        if not siblings:
            del self._by_job[self._job_of(found)]
        return found


@dataclass
class Stores:
    """The caches of the watches."""

    jobs: Store
    pods: Store
    owned: Mapping[ChildKind, Store]  # by kind: Job and Deployment; other kinds are not watched
    gone: set[Key] = field(default_factory=set)  # deleted jobs that may have left objects


class Watch:
    """Keeps a store in step with the API server; after any failure it lists again.

    One of several namespaces may become inaccessible: it was deleted, or the operator lost its permissions there. The
    watches of that namespace keep trying, and nothing else is affected.

    Args:
        client: sends requests.
        kind: kind of the objects.
        namespace: namespace to watch; None for all namespaces.
        selector: label selector; empty for all objects.
        name: name of a single object to watch; empty for all objects.
        store: the cache to update.
        trim: returns the part of an object that is kept.
        changed: called with every object that was added, changed or deleted.
        delivered: called with every delivered state and its type: ADDED, MODIFIED or DELETED, or LISTED.
    """

    def __init__(
        self,
        client: Client,
        kind: str,
        namespace: str | None,
        *,
        selector: str = "",
        name: str = "",
        store: Store,
        trim: Callable[[Mapping[str, Any]], Object],
        changed: Callable[[Object], None],
        delivered: Callable[[Object, str], None] = lambda found, how: None,
        backoff: Backoff | None = None,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.synced = asyncio.Event()  # the store has been filled once
        self.answered = asyncio.Event()  # the store has been filled, or the server refused access to this namespace
        self.heard = time.monotonic()  # when the server last sent something
        self._client = client
        self._selector = selector
        self._name = name
        self._store = store
        self._trim = trim
        self._changed = changed
        self._delivered = delivered
        self._backoff = backoff or Backoff()
        self._version = ""  # empty: list before watching

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        failures = 0
        while True:
            before = self.heard
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                failures = 0
                # A server that ends streams at once is not asked without a pause.
                await asyncio.sleep(0.05)
            except (ApiError, ValueError, *NETWORK_ERRORS) as error:
                failures = 1 if self.heard > before else failures + 1
                if isinstance(error, ApiError) and error.status == 410:
                    self._version = ""
                if isinstance(error, ApiError) and error.status == 403 and self.namespace:
                    self._version = ""
                    self.synced.clear()
                    self.answered.set()
                delay = self._backoff.delay(failures)
                where = self.namespace or "all namespaces"
                log = logger.debug if failures == 1 else logger.warning
                log("watch of %s in %s: retrying in %.1f s: %s", self.kind, where, delay, error or type(error).__name__)
                await asyncio.sleep(delay)

    async def _list(self) -> None:
        ghosts = {key: self._store.get(key) for key in self._store.keys(self.namespace)}
        version = ""
        pages = self._client.pages(self.kind, self.namespace, self._selector, name=self._name, keep=self._trim)
        async for page in pages:
            self.heard = time.monotonic()
            version = page.version
            for item in page.items:
                ghosts.pop(key_of(item), None)
                self._delivered(item, "LISTED")
                self._put(item)
        for ghost in filter(None, ghosts.values()):  # deleted while no watch was running
            self._delivered(ghost, "DELETED")
            self._remove(ghost)
        self._version = version
        self.synced.set()
        self.answered.set()

    @property
    def is_closed(self) -> bool:
        """Whether the operator has no access to this namespace now."""
        return self.answered.is_set() and not self.synced.is_set()

    async def _follow(self) -> None:
        events = self._client.watch(
            self.kind, self.namespace, self._selector, self._version, name=self._name, keep=self._trim
        )
        async for event in events:
            self.heard = time.monotonic()
            how, found = event.get("type"), event["object"]
            if how == "ERROR":
                self._version = ""  # a new list repairs any state
                raise ApiError(found.get("code") or 0, found.get("reason") or "", f"watch: {found.get('message')}")
            if how in ("ADDED", "MODIFIED", "DELETED"):
                self._delivered(found, how)
                (self._remove if how == "DELETED" else self._put)(found)
            self._version = found.get("metadata", {}).get("resourceVersion") or self._version

    def _put(self, found: Object) -> None:
        if self._store.put(found):
            self._changed(found)

    def _remove(self, gone: Object) -> None:
        if (found := self._store.remove(gone)) is not None:
            self._changed(found)


def unwatched_children(job: str) -> tuple[Child, ...]:
    """Kind and name of the objects that every job has, and that are not watched."""
    return (
        ("ConfigMap", names.document(job)),
        ("Secret", names.token(job)),
        ("Service", names.head(job)),
        ("NetworkPolicy", names.network_policy(job)),
    )


def children_for_applications(job: str, *, ingress: bool) -> tuple[Child, ...]:
    """Kind and name of the objects that a job with `spec.externalInput` has in addition; none of them is watched."""
    service: Child = ("Service", names.policy_server(job))
    return (service, ("Ingress", names.policy_server(job))) if ingress else (service,)


def key_of(found: Object) -> Key:
    """Namespace and name of an object."""
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def job_of_label(found: Object) -> Key:
    """The job named by an object's label; an empty name if it has no label."""
    metadata = found["metadata"]
    return metadata.get("namespace", ""), (metadata.get("labels") or {}).get(names.JOB_LABEL, "")


def newer(found: Object, before: Object) -> bool:
    """Whether one state of an object is newer than another; true if that is unknown."""
    if found["metadata"].get("uid") != before["metadata"].get("uid"):
        return True
    now, then = (str(each["metadata"].get("resourceVersion", "")) for each in (found, before))
    return int(now) > int(then) if now.isdecimal() and then.isdecimal() else now != then


def owners(found: Object) -> Iterator[Mapping[str, Any]]:
    """Owner references of an object."""
    yield from found["metadata"].get("ownerReferences") or []


def is_owned_by(found: Object, uid: str) -> bool:
    """Whether an object is owned by the object with this uid."""
    return any(owner.get("uid") == uid for owner in owners(found))


def is_older(pod: Object, job: Object) -> bool:
    """Whether a pod belongs to an earlier job of the same name; Kubernetes' times are in UTC and sort as text."""
    made: str = pod["metadata"].get("creationTimestamp") or "9"
    return made < (job["metadata"].get("creationTimestamp") or "")


def is_leftover(found: Object) -> bool:
    """Whether an object is being deleted, or belongs to another RLTrainingJob than the current one."""
    return bool(found["metadata"].get("deletionTimestamp")) or any(
        owner["kind"] == "RLTrainingJob" for owner in owners(found)
    )


def trim_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the fields that only the API server and kubectl read."""
    kept = {key: value for key, value in metadata.items() if key not in ("managedFields", "selfLink")}
    annotations = metadata.get("annotations") or {}
    if "kubectl.kubernetes.io/last-applied-configuration" in annotations:
        kept["annotations"] = {key: value for key, value in annotations.items() if not key.startswith("kubectl.")}
    return kept


def trim_pod(found: Mapping[str, Any]) -> Object:
    """Return a pod without volumes, environment, commands and annotations: its largest parts, not needed to decide."""
    metadata = trim_metadata(found["metadata"])
    metadata.pop("annotations", None)
    metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key in POD_LABELS}
    spec = found.get("spec") or {}
    keys = ("nodeName", "priorityClassName", "readinessGates", "schedulerName", "schedulingGates")
    kept = {key: spec[key] for key in keys if key in spec}
    kept["containers"] = [
        {key: container[key] for key in ("name", "image", "resources") if key in container}
        for container in spec.get("containers") or []
    ]
    return {"metadata": metadata, "spec": kept, "status": found.get("status") or {}}


def trim_owner_of_pods(found: Mapping[str, Any]) -> Object:
    """Return a Job or Deployment without its pod template; annotations identify the template."""
    spec = {key: value for key, value in (found.get("spec") or {}).items() if key != "template"}
    return {"metadata": trim_metadata(found["metadata"]), "spec": spec, "status": found.get("status") or {}}


def trim_whole(found: Mapping[str, Any]) -> Object:
    """Return an object without unneeded metadata."""
    return {**found, "metadata": trim_metadata(found["metadata"])}


def trim_lease(found: Mapping[str, Any]) -> Object:
    """Return the fields that distinguish two states of a Lease."""
    return {"kind": "Lease", "metadata": trim_metadata(found["metadata"])}


def trim_job(found: Mapping[str, Any]) -> Object:
    """Return what is cached of an RLTrainingJob: what decisions need, without the document if the job has ended."""
    job = whole_job(found)
    if job["status"].get("phase") not in FINISHED:
        return job
    spec = job["spec"] if isinstance(job["spec"], dict) else {}
    kept = {key: spec[key] for key in ("algorithm",) if key in spec}
    if isinstance(environment := spec.get("environment"), dict):
        kept["environment"] = {"name": environment.get("name")}
    return {**job, "spec": kept, names.SHORTENED: True}


def whole_job(found: Mapping[str, Any]) -> Object:
    """Return what a decision needs of an RLTrainingJob; for a document above the limits, only why it is refused."""
    metadata, spec = found["metadata"], found.get("spec")
    kept: dict[str, Any] = {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": {key: metadata[key] for key in JOB_METADATA if key in metadata},
        "spec": spec,
        "status": found.get("status") or {},
    }
    try:
        check_limits(spec)
    except ConfigError as error:
        kept["spec"] = {"suspend": spec.get("suspend")} if isinstance(spec, dict) else None
        kept[names.REFUSAL] = str(error)
    return kept
