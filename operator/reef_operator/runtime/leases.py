"""Leases: a canary that proves that watches deliver, and the election of one operator among several."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from reef_operator.connection.client import ApiError, Client
from reef_operator.model import Object
from reef_operator.runtime.watch import key_of

BEAT_S = 30.0
PATIENCE_S = 150.0  # a silent stream is noticed after 70 s, and as long again while the API server restarts
WATCHED = ("RLTrainingJob", "Lease")  # kinds whose watches are proved in this way
LEASE_S, RENEW_WITHIN_S, RETRY_S = 15.0, 10.0, 2.0
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine is suspended, where it can

logger = logging.getLogger(__name__)


class WatchProof:
    """Whether a watch delivers what is known to have been written.

    A watch may be deaf although its connection lives. So every state that we know from elsewhere is expected to come
    by on the watch.
    """

    def __init__(self, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._seen: dict[str, int] = {}  # by uid: newest version that came by
        self._expected: dict[str, tuple[float, Object]] = {}  # by uid: until when, and which state
        self.delivered = dict.fromkeys(WATCHED, 0)  # by kind: changes that a watch told, those of its listings left out

    def expect(self, found: Object) -> None:
        """This state, or a later one, must come by."""
        uid = found["metadata"]["uid"]
        if self._seen.get(uid, -1) < version_of(found) and uid not in self._expected:
            self._expected[uid] = (self._clock() + self._patience_s, outline(found))

    def saw(self, found: Object, how: str = "MODIFIED") -> None:
        """This state came by, as LISTED when a watch began, or as ADDED, MODIFIED or DELETED."""
        uid, version = found["metadata"]["uid"], version_of(found)
        self.delivered[kind_of(found)] += how != "LISTED"
        if how == "DELETED":
            self.drop(uid)
            return
        self._seen[uid] = version
        if uid in self._expected and version >= version_of(self._expected[uid][1]):
            del self._expected[uid]

    def drop(self, uid: str) -> None:
        """Nothing more is expected of an object that is gone."""
        self._expected.pop(uid, None)
        self._seen.pop(uid, None)

    def overdue(self) -> list[Object]:
        """What should have come by and has not."""
        now = self._clock()
        return [found for until, found in self._expected.values() if now > until]

    def ages(self) -> dict[str, float]:
        """How long ago the oldest state came to be that is overdue, by kind; 0 where none is: silence is no fault."""
        now, ages = self._clock(), dict.fromkeys(WATCHED, 0.0)
        for until, found in list(self._expected.values()):
            if now > until:
                ages[found["kind"]] = max(ages.get(found["kind"], 0.0), now - until + self._patience_s)
        return ages

    async def fault(self, client: Client) -> str:
        """Say what a watch has missed; empty when all is well.

        A deletion may pass a watch unseen while it lists anew: what is gone is not missed. Without an API server that
        answers nothing is known, and nothing said; nor of a namespace that is closed to the operator.
        """
        for found in self.overdue():
            kind, key = found["kind"], key_of(found)
            try:
                now = await client.listed(kind, *key)
            except ApiError as error:
                if error.status != 403:
                    return ""
                now = None
            if now is not None and now["metadata"]["uid"] == found["metadata"]["uid"]:
                return f"the watch did not deliver {kind} {'/'.join(key)} within {self._patience_s:.0f} s"
            self.drop(found["metadata"]["uid"])
        return ""


def outline(found: Object) -> Object:
    """What is needed to find an object and its state again."""
    metadata = {key: found["metadata"].get(key, "") for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"kind": kind_of(found), "metadata": metadata}


def kind_of(found: Object) -> str:
    """The kind of an object, which the items of a list of jobs do not name."""
    return found.get("kind") or "RLTrainingJob"


def version_of(found: Object) -> int:
    """An object's version as a number; 0 where the server counts otherwise, so that any state will do."""
    version = found["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


class Canary:
    """Changes a Lease of its own again and again, for a watch to see.

    Args:
        client: requests.
        namespace: where the Lease is.
        name: of the Lease.
        proof: told what was written.
    """

    def __init__(self, client: Client, namespace: str, name: str, proof: WatchProof) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._proof = proof

    async def run(self) -> None:
        """Beat until cancelled; an API server that does not answer is no sign of a dead watch."""
        while True:
            try:
                self._proof.expect(await self.beat())
            except ApiError as error:
                logger.debug("canary: %s", error)
            await asyncio.sleep(BEAT_S)

    async def beat(self) -> Object:
        """Change the Lease, or make it; return it."""
        spec = {"renewTime": micro_time()}
        try:
            return await self._client.patch("Lease", self._namespace, self._name, {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
        made = await self._client.create("Lease", self._namespace, lease(self._name, spec))
        return made or await self.beat()


class LeaderElection:
    """Holds a Lease, so that of several operators one works.

    Args:
        client: requests.
        namespace: where the Lease is.
        name: of the Lease.
        identity: of this operator, different for each.
    """

    def __init__(self, client: Client, namespace: str, name: str, identity: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._last: tuple[str, float] = ("", 0.0)  # version of another's lease, and since when it has not changed
        self._renewed = -math.inf  # when the renewal was asked for that succeeded last

    def leads(self) -> bool:
        """Whether no other operator can have the Lease yet; False also after this process has stood still for long."""
        return time.clock_gettime(CLOCK) - self._renewed < RENEW_WITHIN_S

    async def acquire(self) -> None:
        """Wait until this operator leads."""
        told = False
        while True:
            try:
                if await self._attempt():
                    if self.leads():
                        break
                    logger.warning("lease: written only after %.0f s, so that it is renewed first", RENEW_WITHIN_S)
                elif not told:
                    logger.info("another operator leads; waiting for the Lease %s/%s", self._namespace, self._name)
                    told = True
            except ApiError as error:
                logger.warning("lease: %s", error)
            await asyncio.sleep(RETRY_S)
        logger.info("this operator leads: %s", self._identity)

    async def hold(self) -> None:
        """After `acquire`: renew until another leads, or until renewing fails for nearly as long as another would wait.

        This operator must end at once then.
        """
        while self.leads():
            try:
                async with asyncio.timeout(max(0.1, self._renewed + RENEW_WITHIN_S - time.clock_gettime(CLOCK))):
                    if not await self._attempt(take=False):
                        break
            except TimeoutError:
                break
            except ApiError as error:  # another cannot take it yet
                logger.warning("lease: %s", error)
            await asyncio.sleep(RETRY_S)
        logger.error("the Lease %s/%s is lost", self._namespace, self._name)

    async def release(self) -> None:
        """Let the next one lead at once."""
        try:
            found = await self._client.get("Lease", self._namespace, self._name)
            if found is not None and found["spec"].get("holderIdentity") == self._identity:
                await self._write(found, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except ApiError as error:
            logger.debug("lease not released: %s", error)

    async def _attempt(self, *, take: bool = True) -> bool:
        """Renew the lease, or `take` it; False when another has it or, without `take`, has had it.

        Raises:
            ApiError: the API server did not do it, or the Lease changed meanwhile.
        """
        found = await self._client.get("Lease", self._namespace, self._name)
        asked = time.clock_gettime(CLOCK)  # others count from when they see what is written now
        if found is None:
            spec = self._spec() | {"acquireTime": micro_time(), "leaseTransitions": 0}
            if await self._client.create("Lease", self._namespace, lease(self._name, spec)) is None:
                return False
        else:
            spec, own = found.get("spec") or {}, self._spec()
            if spec.get("holderIdentity") != self._identity:
                if not take or not self._expired(found, spec):
                    return False
                own |= {"acquireTime": micro_time(), "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1}
            await self._write(found, own)
        self._renewed = asked
        return True

    def _expired(self, found: Object, spec: Mapping[str, Any]) -> bool:
        """Whether the holder has not renewed for the lease's time, measured with our own clock."""
        if not spec.get("holderIdentity"):
            return True
        version = found["metadata"]["resourceVersion"]
        if self._last[0] != version:
            self._last = (version, time.monotonic())
        return time.monotonic() - self._last[1] > (spec.get("leaseDurationSeconds") or LEASE_S)

    async def _write(self, found: Object, spec: Mapping[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": spec}
        await self._client.patch("Lease", self._namespace, self._name, body)

    def _spec(self) -> dict[str, Any]:
        return {"holderIdentity": self._identity, "leaseDurationSeconds": int(LEASE_S), "renewTime": micro_time()}


def lease(name: str, spec: Mapping[str, Any]) -> Object:
    """A Lease."""
    labels = {"app.kubernetes.io/name": "reef", "app.kubernetes.io/component": "operator"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": labels},
        "spec": dict(spec),
    }


def micro_time() -> str:
    """The time as Leases write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
