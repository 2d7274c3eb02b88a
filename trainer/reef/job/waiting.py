"""Waiting for the worker pods: for enough of them before training begins, and when too many were lost on the way."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import ray

from reef.distributed.node_settings import POOL
from reef.errors import ConfigError
from reef.job.progress import HeadState
from reef.job.settings import pools_decide
from reef.run.process.deadline import Deadline

if TYPE_CHECKING:
    from reef.api import JobSpec
    from reef.rollout.seams import Workers

log = logging.getLogger(__name__)
LOOK_AGAIN_S = 0.5
LOOK_RARELY_S = 2.0  # while training


def joined() -> Counter[str]:
    """Pods that are part of the Ray cluster now, by pool."""
    names = (name for node in ray.nodes() if node["Alive"] for name in node["Resources"])  # type: ignore[no-untyped-call]
    return Counter(name.removeprefix(POOL) for name in names if name.startswith(POOL))


def lacking(spec: JobSpec, there: Counter[str], *, all_of_them: bool) -> Iterator[str]:
    """What is missing of each pool, of its `minReplicas` or of `all_of_them`."""
    wanted = spec.pool_replicas
    for pool in spec.workers:
        count = wanted[pool.name]
        needed = count if all_of_them else pool.least(count)
        if there[pool.name] < needed:
            at_least = "" if needed == count else f" (at least {needed})"
            yield f"pool {pool.name}: {there[pool.name]} of {count} pods have joined{at_least}"


class LatestSpec:
    """The document as it is now, at each call: pools may be scaled, renamed or removed while the job waits or runs."""

    def __init__(self, spec: JobSpec, read: Callable[[], JobSpec]) -> None:
        """`spec` counts until `read` gives another one."""
        self._spec, self._read = spec, read
        self._wrong = ""  # what was last said of the document

    def __call__(self) -> JobSpec:
        """Read it; one that cannot be read leaves the last one."""
        try:
            self._spec = self._read()
        except ConfigError as error:  # half-written, or edited into something wrong
            if str(error) != self._wrong:
                log.warning("%s", error)
            self._wrong = str(error)
        return self._spec


def wait_for_pools(read_spec: Callable[[], JobSpec], head_state: HeadState, patience_s: float) -> None:
    """Return when every pool is complete, or `patience_s` seconds after each has its `minReplicas`.

    `read_spec` gives the document as it is now, as a `LatestSpec` does.
    """
    enough_since: float | None = None
    while missing := list(lacking(spec := read_spec(), there := joined(), all_of_them=True)):
        if any(lacking(spec, there, all_of_them=False)):
            enough_since = None
        elif enough_since is None:
            enough_since = time.monotonic()
        elif time.monotonic() - enough_since >= patience_s:
            log.warning("training begins with fewer pods: %s", "; ".join(missing))
            return
        head_state.enter("waiting", "waiting for workers, " + "; ".join(missing))
        time.sleep(LOOK_AGAIN_S)


class PoolGate:
    """Holds the training before an iteration while a pool has fewer pods than its `minReplicas`.

    Where the pools decide on the number of rollout workers, it asks for those of the pods that are there or wanted.
    """

    def __init__(
        self,
        read_spec: Callable[[], JobSpec],
        head_state: HeadState,
        deadline: Deadline | None = None,
        *,
        lacking_room: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`read_spec` gives the document as it is now, as a `LatestSpec` does; `deadline`: of the run.

        `lacking_room` says why the pods that have joined have no room for training to go on, if so: it holds then
        too, as the document may want fewer pods than when the head began.
        """
        self._read_spec, self._head_state, self._deadline = read_spec, head_state, deadline or Deadline()
        self._lacking_room, self._looked_at = lacking_room, 0.0

    def __call__(self, workers: Workers) -> None:
        """Return when enough pods are there.

        Raises:
            Overdue: a signal came meanwhile; no iteration is under way that is worth waiting for.
        """
        if time.monotonic() - self._looked_at < LOOK_RARELY_S:
            return
        spec = self.wait()
        self._head_state.enter("training")
        if pools_decide(spec):
            there, wanted = joined(), spec.pool_replicas  # pods come before the document says so
            pods = {name: max(there[name], wanted[name]) for name in wanted}
            workers.resize(sum(pods[pool.name] * pool.rollout_workers for pool in spec.workers))
        self._looked_at = time.monotonic()

    def wait(self) -> JobSpec:
        """Return the document as it is once enough pods are there; Overdue as above."""
        while missing := self._missing(spec := self._read_spec()):
            self._deadline.end_if_set()
            self._head_state.enter("waiting", "training pauses, " + "; ".join(missing))
            time.sleep(LOOK_AGAIN_S)
        return spec

    def _missing(self, spec: JobSpec) -> list[str]:
        """Why training cannot go on; nothing if it can."""
        there = joined()
        if too_few := list(lacking(spec, there, all_of_them=False)):
            return too_few
        no_room = list(self._lacking_room())
        return [*lacking(spec, there, all_of_them=True), *no_room] if no_room else []
