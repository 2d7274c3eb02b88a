from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from reef.run.signals import Overdue, StopSignals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_noted_and_the_handlers_come_back(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with StopSignals() as signals:
        assert signals.exit_code == 0
        signal.raise_signal(number)
        assert signals.exit_code == code
    assert signal.getsignal(number) is before


def test_the_second_interrupt_aborts() -> None:
    with StopSignals(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_the_first_signal_decides_the_exit_code() -> None:
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert signals.exit_code == 143


def test_handlers_of_others_are_replaced_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signals.install()
        signal.raise_signal(signal.SIGTERM)
        assert signals.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with StopSignals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(5)
    assert seen == [before]


def test_an_overdue_run_is_cut_off_where_it_waits_for_workers_and_nowhere_else() -> None:
    def sleeper_in(module: str) -> Any:
        namespace: dict[str, Any] = {"__name__": module, "time": time}
        exec("def wait(): time.sleep(5)", namespace)
        return namespace["wait"]

    with StopSignals(patience_s=0.1) as signals:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.3)  # half-done work, here and below
        began = time.monotonic()
        with pytest.raises(Overdue):
            sleeper_in("reef.distributed.actor_group")()
        assert time.monotonic() - began < 2.0
        assert signals.exit_code == 143
        time.sleep(0.3)  # once is enough
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with StopSignals(patience_s=0.1):
        signal.raise_signal(signal.SIGTERM)
    time.sleep(0.3)  # no alarm is left behind
