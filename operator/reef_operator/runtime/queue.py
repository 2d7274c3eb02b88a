"""The work queue: each job's key is queued at most once, and a job is never reconciled twice at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import IntEnum

from reef_operator.connection.limits import Backoff

Key = tuple[str, str]  # namespace and name of a job
SHARE = 4  # one of this many queue workers is patient

logger = logging.getLogger(__name__)


class Urgency(IntEnum):
    """Why a job is queued, the most urgent reason first."""

    CHANGED = 0  # something happened to it
    NEW = 1  # hundreds of new jobs at once must not delay changes of the others
    PROGRESS = 2  # there may be progress to report


class Turns:
    """Waiting keys. Namespaces take turns; keys of one namespace are served in order of arrival.

    A namespace with ten thousand keys delays each key of another namespace by at most one key.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Key, None]] = {}  # by namespace; the first one is next

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting.get(key[0], ())

    def add(self, key: Key) -> None:
        """Append a key to the queue of its namespace."""
        self._waiting.setdefault(key[0], {})[key] = None

    def discard(self, key: Key) -> None:
        """Remove a key."""
        own = self._waiting.get(key[0], {})
        own.pop(key, None)
        if not own:
            self._waiting.pop(key[0], None)

    def pop(self, *, besides: Iterable[Turns] = ()) -> Key | None:
        """Remove and return the next key, and move its namespace to the end; None if no key waits.

        Args:
            besides: namespaces with keys in one of these are skipped.
        """
        passed_over = set().union(*(turns._waiting for turns in besides))
        namespace = next((each for each in self._waiting if each not in passed_over), None)
        if namespace is None:
            return None
        own = self._waiting.pop(namespace)
        key = next(iter(own))
        del own[key]
        if own:
            self._waiting[namespace] = own
        return key


class WorkQueue:
    """Keys of jobs to reconcile; namespaces take turns.

    A waiting key is not added twice; a key that is added while it is being handled is handled again. More urgent keys
    go first, so a lost pod is handled at once however much progress there is to report. Only patient workers handle
    progress, so the API server is never busy with it when something happens. They begin with less urgent keys of
    namespaces that have no more urgent ones, so that one tenant's changes do not stop the progress reports of others.

    Args:
        backoff: delays after consecutive failures of one key.
    """

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff(first=0.2, limit=15.0)
        self._loop = asyncio.get_running_loop()
        self._waiting = {urgency: Turns() for urgency in Urgency}
        self._since: dict[Key, float] = {}  # time at which a waiting or marked key was first added
        self._working: set[Key] = set()
        self._marked: dict[Key, Urgency] = {}  # keys that were added while they are being handled
        self._taken = 0  # number of keys taken by patient workers
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._added = asyncio.Event()

    def add(self, key: Key, urgency: Urgency = Urgency.CHANGED) -> None:
        """Queue a key; of several reasons the most urgent one counts."""
        if key in self._working:
            self._since.setdefault(key, self._loop.time())
            self._marked[key] = min(self._marked.get(key, urgency), urgency)
        elif key not in self._since:
            self._since[key] = self._loop.time()
            self._let_wait(key, urgency)
        elif not any(key in self._waiting[other] for other in Urgency if other <= urgency):
            for turns in self._waiting.values():
                turns.discard(key)
            self._let_wait(key, urgency)

    def _let_wait(self, key: Key, urgency: Urgency) -> None:
        self._waiting[urgency].add(key)
        self._added.set()

    def add_after(self, key: Key, delay_s: float) -> None:
        """Queue a key after a delay in seconds; of several delays the earliest end counts."""
        due = self._loop.time() + delay_s
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = self._loop.call_at(due, self._elapsed, key)

    def add_failed(self, key: Key) -> float:
        """Queue a key after a delay that grows with its failures; return the delay in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(self._failures[key])
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: Key) -> None:
        """Reset the failures of a key."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Remove all state of a key whose job is deleted."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def get(self, *, patient: bool = True) -> Key:
        """Wait for the next key and return it; it counts as being handled until `done`."""
        while (key := next(filter(None, self._candidates(patient)), None)) is None:
            self._added.clear()
            await self._added.wait()
        del self._since[key]
        self._working.add(key)
        return key

    def _candidates(self, patient: bool) -> Iterator[Key | None]:
        """Yield the next key, or None, by each rule in turn; a key is removed only when it is asked for."""
        changed, new, progress = self._waiting.values()
        if patient:
            self._taken += 1
            fair = [(progress, (changed, new)), (new, (changed,))]
            for waiting, more_urgent in fair if self._taken % 2 else reversed(fair):
                yield waiting.pop(besides=more_urgent)
        yield changed.pop()
        yield new.pop()
        if patient:
            yield progress.pop()

    def done(self, key: Key) -> None:
        """Mark a key as handled."""
        self._working.discard(key)
        if key in self._marked:
            self._let_wait(key, self._marked.pop(key))

    def depth(self) -> int:
        """Number of waiting keys."""
        return len(self._since)

    def age(self) -> float:
        """Waiting time of the oldest key in seconds; 0 if no key waits."""
        return max((self._loop.time() - since for since in list(self._since.values())), default=0.0)

    async def work(self, handle: Callable[[Key], Awaitable[None]], *, patient: bool = True) -> None:
        """Handle keys one after the other, forever; run several of these in parallel, some of them patient.

        An exception of `handle` is logged, and the key is queued again after a delay.
        """
        while True:
            key = await self.get(patient=patient)
            try:
                await handle(key)
            except Exception as error:
                delay = self.add_failed(key)
                logger.warning(
                    "retrying in %.1f s: %s", delay, error, extra=log_fields(key), exc_info=unexpected(error)
                )
            else:
                self.succeeded(key)
            finally:
                self.done(key)

    def _elapsed(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)


def log_fields(key: Key) -> dict[str, str]:
    """Return the fields with the job's name for a log record."""
    return {"namespace": key[0], "job": key[1]}


def unexpected(error: Exception) -> bool:
    """Whether the traceback of an error should be logged; an error that names the refused request does not need one."""
    return not getattr(error, "explained", False)
