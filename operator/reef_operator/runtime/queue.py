"""The work queue: keys of jobs, each at most once, never two reconciles of one key at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import IntEnum

from reef_operator.connection.limits import Backoff

Key = tuple[str, str]  # namespace and name of a job
SHARE = 4  # of so many that work on keys one is patient

logger = logging.getLogger(__name__)


class Urgency(IntEnum):
    """Why a job is to be looked at, the most urgent first."""

    CHANGED = 0  # something has happened to it
    NEW = 1  # hundreds that come at once must not hide what happens to the others
    PROGRESS = 2  # there may be something to say of it


class Turns:
    """Keys that wait, of which namespaces take turns; those of one namespace go in the order in which they came.

    So one that has ten thousand of them delays another's by no more than one at a time.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Key, None]] = {}  # by namespace, the next one first

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting.get(key[0], ())

    def add(self, key: Key) -> None:
        """Let a key wait behind those of its namespace."""
        self._waiting.setdefault(key[0], {})[key] = None

    def discard(self, key: Key) -> None:
        """Let a key wait no more."""
        own = self._waiting.get(key[0], {})
        own.pop(key, None)
        if not own:
            self._waiting.pop(key[0], None)

    def pop(self, *, besides: Iterable[Turns] = ()) -> Key | None:
        """The next key, whose namespace goes behind the others; None when none waits.

        Args:
            besides: namespaces that wait in one of these are passed over.
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
    """Keys that want to be looked at; namespaces take turns.

    A key that is added while it waits is not added again; one that is added while it is worked on comes again. What is
    more urgent goes first: however much there is to say of progress, a lost pod is seen at once. Only the patient say
    something of progress, so that the API server is never full of it when something happens; and they first take what
    is less urgent in namespaces where nothing is more so: what one tenant makes does not stop the progress of others.

    Args:
        backoff: delays after failures of one key in a row.
    """

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff(first=0.2, limit=15.0)
        self._loop = asyncio.get_running_loop()
        self._waiting = {urgency: Turns() for urgency in Urgency}
        self._since: dict[Key, float] = {}  # when a waiting or marked key was first added
        self._working: set[Key] = set()
        self._marked: dict[Key, Urgency] = {}  # those that were added while they are worked on
        self._taken = 0  # by the patient
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._added = asyncio.Event()

    def add(self, key: Key, urgency: Urgency = Urgency.CHANGED) -> None:
        """Let the key be worked on soon; of several reasons the most urgent counts."""
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
        """Let the key be worked on after so many seconds; of several such wishes the earliest counts."""
        due = self._loop.time() + delay_s
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = self._loop.call_at(due, self._elapsed, key)

    def add_failed(self, key: Key) -> float:
        """Let the key be worked on again after a delay that grows with its failures; return the delay in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(self._failures[key])
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: Key) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop everything that is kept for a key whose job is gone."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def get(self, *, patient: bool = True) -> Key:
        """The next key; it counts as worked on until `done`."""
        while (key := next(filter(None, self._candidates(patient)), None)) is None:
            self._added.clear()
            await self._added.wait()
        del self._since[key]
        self._working.add(key)
        return key

    def _candidates(self, patient: bool) -> Iterator[Key | None]:
        """The next key or None by each rule in turn; taken off only as far as they are asked for."""
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
        """The key is not worked on any more."""
        self._working.discard(key)
        if key in self._marked:
            self._let_wait(key, self._marked.pop(key))

    def depth(self) -> int:
        """Number of keys that wait."""
        return len(self._since)

    def age(self) -> float:
        """Seconds for which the oldest key waits; 0 when none does."""
        return max((self._loop.time() - since for since in list(self._since.values())), default=0.0)

    async def work(self, handle: Callable[[Key], Awaitable[None]], *, patient: bool = True) -> None:
        """Work on keys for ever, one after the other; run several of these for several keys at a time, some patient.

        An exception of `handle` is logged, and the key comes again after its backoff.
        """
        while True:
            key = await self.get(patient=patient)
            try:
                await handle(key)
            except Exception as error:
                delay = self.add_failed(key)
                logger.warning("again in %.1f s: %s", delay, error, extra=log_fields(key), exc_info=unexpected(error))
            else:
                self.succeeded(key)
            finally:
                self.done(key)

    def _elapsed(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)


def log_fields(key: Key) -> dict[str, str]:
    """The job's name for a log record."""
    return {"namespace": key[0], "job": key[1]}


def unexpected(error: Exception) -> bool:
    """Whether an error needs a traceback: one that says who refused what does not."""
    return not getattr(error, "explained", False)
