from __future__ import annotations

import importlib
import math
import signal
import threading
import time
from pathlib import Path

import pytest

from reef.run.process.deadline import Overdue
from reef.run.signals import StopSignals, Terminated, sigterm_raises


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_is_remembered_after_the_run(number: signal.Signals) -> None:
    with StopSignals() as signals:
        signal.raise_signal(number)
    assert signals.terminated == (number == signal.SIGTERM)


def test_sigterm_is_remembered_where_it_changes_nothing_any_more() -> None:
    signals = StopSignals()
    before = signal.signal(signal.SIGTERM, signals.note_sigterm)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signals.terminated


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


def test_a_run_is_overdue_once_and_only_after_its_patience() -> None:
    with StopSignals(patience_s=0.1) as signals:
        signals.deadline.end_if_over()
        signal.raise_signal(signal.SIGTERM)
        signals.deadline.end_if_over()
        time.sleep(0.15)
        with pytest.raises(Overdue):
            signals.deadline.end_if_over()
        signals.deadline.end_if_over()  # the checkpoint is written undisturbed
        assert signals.exit_code == 143


def test_without_patience_and_after_the_run_nothing_is_overdue() -> None:
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signals.deadline.end_if_over()
    with StopSignals(patience_s=0.0) as signals:
        signal.raise_signal(signal.SIGTERM)
    signals.deadline.end_if_over()


def test_a_signal_of_one_run_ends_no_other() -> None:
    other = StopSignals(patience_s=0.0)
    with StopSignals(patience_s=0.0) as signals:
        signal.raise_signal(signal.SIGTERM)
        other.deadline.end_if_over()
        assert signals.deadline.time_left() < other.deadline.time_left() == math.inf
        assert (signals.terminated, other.terminated) == (True, False)


def test_sigterm_waits_for_the_end_of_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowly_imported.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.2)\nimported = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    modules = []
    with pytest.raises(Terminated), sigterm_raises():
        modules.append(importlib.import_module("slowly_imported"))
        time.sleep(10.0)
    assert modules[0].imported


def test_sigterm_that_waits_is_not_forgotten_when_a_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.run.signals._is_importing", lambda frame: frame is not None)
    with pytest.raises(Terminated), sigterm_raises():
        signal.raise_signal(signal.SIGTERM)
        with StopSignals():
            pytest.fail("the run began")
