"""Notices that an environment hangs in this process, says where, saves what was learned, and ends the process.

A thread looks at the main thread's stack once a second, so that sampling pays nothing. A call that never lets other
threads run, as C code may, stops this thread too. For that case it keeps a timer of `faulthandler` wound up, which runs
without Python: when it is not wound up again, it prints the stacks and ends the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from reef.config import AlgorithmConfig
from reef.errors import EXIT_FAILED
from reef.rollout.worker import RolloutWorker
from reef.run.evaluation import Evaluation
from reef.run.signals import EXIT_CODES

log = logging.getLogger(__name__)
TICK_S = 1.0
STOPPED_S = 2 * TICK_S  # a longer tick is time in which this process stood still, which is no hang
PATIENCE_S = 10.0  # after a signal, for one call of an environment, where the time that the process has is not known
MARGIN_S = 5.0  # the timer without Python comes after this thread
SAVE_S = 120.0  # for the checkpoint of a process that hangs
LONGEST_S = 1e6  # of a timer
SHOWN_FRAMES = 12

ReportEnd = Callable[[int, str], None]  # takes exit code and message


@dataclass(frozen=True)
class Place:
    """The kind of work with an environment that the main thread does, and how long one call may take."""

    what: str
    key: str  # the setting of the limit
    limit_s: float


class Watchdog:
    """Ends a process whose main thread hangs in an environment.

    The exit code is 1 after a time limit, and that of the signal where one came before: with `patience_s` that long
    after it, else when one call has lasted for `PATIENCE_S`. Outside the main thread it does nothing.
    """

    def __init__(self, config: AlgorithmConfig, patience_s: float | None = None, say: ReportEnd | None = None) -> None:
        """`say` gets exit code and message when the process is ended; they are logged in any case."""
        self._config, self._patience_s, self._say = config, patience_s, say
        # of a run, once it has begun
        self._progress: Callable[[], object] = lambda: None
        self._rescue: Callable[[], str | None] = lambda: "there was nothing to save."
        self._looking = threading.Lock()
        self._main = threading.main_thread()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._signal: signal.Signals | None = None
        self._signal_at = math.inf
        self._stuck_s = 0.0
        limit_s = config.worker_restore_timeout_s
        self._making = Place("making or restoring environments", "worker_restore_timeout_s", limit_s)
        self._last: tuple[Place | None, object] = None, None

    def __enter__(self) -> Self:
        if threading.current_thread() is self._main:
            self._read, self._write = os.pipe()
            os.set_blocking(self._write, False)
            # written to by the handler in C, also where the main thread never comes to run the one in Python
            self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            self._stop_before = signal.signal(signal.SIGTSTP, _stop_for_a_while)
            self._wind_up(self._making)  # before the first look, as what is made may let no other thread run
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.ident is None:
            return
        signal.set_wakeup_fd(self._wakeup_before)
        signal.signal(signal.SIGTSTP, self._stop_before)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def begin(self, progress: Callable[[], object], rescue: Callable[[], str | None]) -> None:
        """From now on what hangs is a step of a run, whose limits are others than those of making environments.

        `progress()` changes with every step of the environments in this process. `rescue()` saves what was learned and
        returns what that is, None when the main thread left the environment meanwhile.
        """
        with self._looking:
            self._progress, self._rescue = progress, rescue
            if self._thread.ident is not None:
                self._wind_up(None)  # before the first step, which may let no other thread run

    def _watch(self) -> None:
        try:
            self._look_until_the_end()
        except Exception:  # a defect of this thread must not end a run that is well
            log.exception("hangs of an environment are not noticed any more")
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _look_until_the_end(self) -> None:
        last = time.monotonic()
        while True:
            if select.select([self._read], [], [], TICK_S)[0]:
                numbers = os.read(self._read, 64)
                if not numbers:
                    return
                self._note(numbers)
            now = time.monotonic()
            with self._looking:
                self._look(min(now - last, STOPPED_S), now)
            last = now

    def _note(self, numbers: bytes) -> None:
        for number in numbers:
            if number in EXIT_CODES and self._signal is None:
                self._signal, self._signal_at = signal.Signals(number), time.monotonic()

    def _look(self, tick_s: float, now: float) -> None:
        place = self._place()
        seen = place, self._progress()
        self._stuck_s = self._stuck_s + tick_s if seen == self._last else 0.0
        self._last = seen
        self._wind_up(place)
        if place is None:
            return
        if self._stuck_s >= place.limit_s:
            self._end(EXIT_FAILED, f"{place.what} hangs: no step for {place.key}={place.limit_s:g} s")
        elif self._signal is not None and self._is_overdue(now):
            what = f"{self._signal.name} came and {place.what} did not end within {now - self._signal_at:.0f} s"
            self._end(EXIT_CODES[self._signal], what)

    def _is_overdue(self, now: float) -> bool:
        waited = now - self._signal_at
        if self._patience_s is not None:
            return waited >= self._patience_s
        return min(waited, self._stuck_s) >= PATIENCE_S

    def _place(self) -> Place | None:
        """What the main thread does with an environment; None while it does something else."""
        frame, codes, innermost = self._frame(), set(), ""
        while frame is not None:
            codes.add(frame.f_code)
            module = frame.f_globals.get("__name__", "")
            if not innermost and module.startswith("reef."):
                innermost = module
            frame = frame.f_back
        config = self._config
        if RolloutWorker.sample.__code__ not in codes:
            return self._making if innermost.startswith("reef.envs.") else None
        if config.in_evaluation or Evaluation.run.__code__ in codes:
            return Place("evaluation", "evaluation_sample_timeout_s", config.evaluation_sample_timeout_s)
        return Place("sampling", "sample_timeout_s", config.sample_timeout_s)

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._main.ident or 0)

    def _wind_up(self, place: Place | None) -> None:
        """Have the process ended when this thread does not come back here in time."""
        config = self._config
        limits = [config.sample_timeout_s, config.evaluation_sample_timeout_s if config.evaluation_interval else 0.0]
        _end_later(max([*limits, place.limit_s if place else 0.0]) + MARGIN_S)

    def _end(self, code: int, what: str) -> None:
        """Say where it hangs, save, and end the process; goes on where the main thread did meanwhile."""
        frame = self._frame()
        where = "".join(traceback.format_stack(frame)[-SHOWN_FRAMES:]).rstrip() if frame else "(it has ended)"
        _end_later(SAVE_S)
        try:
            saved = self._rescue()
        except Exception as error:
            log.warning("nothing was saved of what was learned since the newest checkpoint", exc_info=True)
            saved = f"nothing was saved since the newest checkpoint: {type(error).__name__}: {error}"
        if saved is None:
            return
        message = f"{what}; {saved} It was in:\n{where}"
        log.error("ends with exit code %d: %s", code, message)
        with contextlib.suppress(Exception):  # whatever it is, the process must end
            if self._say is not None:
                self._say(code, message)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(code)


def _stop_for_a_while(number: int, frame: FrameType | None) -> None:
    """Obey Ctrl-Z without the timer, which would end the process when that goes on."""
    faulthandler.cancel_dump_traceback_later()
    os.kill(os.getpid(), signal.SIGSTOP)


def _end_later(seconds: float) -> None:
    """End the process after so long with the stacks of all threads on stderr and code 1, unless called again."""
    stream: Any = sys.__stderr__
    with contextlib.suppress(Exception):  # a process without stderr has no timer
        faulthandler.dump_traceback_later(min(seconds, LONGEST_S), exit=True, file=stream)
