"""The head's first process: what it makes of the ways in which its child may end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reef.job.supervisor import NO_RESULT, SILENT

START = """
import ctypes, os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
from reef.job.supervisor import go_on_in_child
tell = go_on_in_child()
"""
PREPARED = {"exitCode": 1, "reason": "Failed", "message": SILENT, "training": {"iteration": 7}}
LAST_WORDS = {"exitCode": 1, "reason": "Failed", "message": "disk full"}


def start(code: str, words: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"REEF_TERMINATION_LOG": str(words)}
    return subprocess.Popen([sys.executable, "-c", START + code], env=environment, text=True, stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    ("child", "code", "message"),
    [
        ("os._exit(0)", 1, NO_RESULT),
        ("ctypes.CDLL(None).exit(0)", 1, NO_RESULT),
        ("if os.fork(): os._exit(0)\ntime.sleep(5)", 1, NO_RESULT),
        ("sys.exit(3)", 3, SILENT),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, f"{SILENT} (SIGSEGV)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, f"{SILENT} (SIGKILL)"),
        ("tell(0)", 0, SILENT),
        ("tell(0); ctypes.string_at(0)", 0, SILENT),
        ("tell(143); sys.exit(143)", 143, SILENT),
    ],
)
def test_only_a_result_that_was_told_is_an_end(tmp_path: Path, child: str, code: int, message: str) -> None:
    words = tmp_path / "words"
    words.write_text(json.dumps(PREPARED))
    process = start(child, words)
    assert process.wait(20) == code
    said = json.loads(words.read_text())
    assert (said["message"], said["training"]) == (message, {"iteration": 7})
    assert said["exitCode"] == (1 if message == SILENT else None), "without a message of its own there is no code"


@pytest.mark.parametrize(
    ("before", "message"),
    [("", NO_RESULT), (json.dumps(LAST_WORDS), "disk full"), ("no JSON", None), ("5", None)],
)
def test_words_of_the_head_itself_stay(tmp_path: Path, before: str, message: str | None) -> None:
    words = tmp_path / "words"
    words.write_text(before)
    assert start("os._exit(0)", words).wait(20) == 1
    text = words.read_text()
    assert text == before if message is None else json.loads(text)["message"] == message


def test_a_head_that_cannot_leave_a_message_may_succeed_and_fail(tmp_path: Path) -> None:
    assert start("tell(0)", tmp_path / "none" / "words").wait(20) == 0
    assert start("os._exit(0)", tmp_path / "none" / "words").wait(20) == 1


def test_sigterm_reaches_the_child_also_while_it_loads(tmp_path: Path) -> None:
    loading = """
def end(*_):
    tell(143)
    sys.exit(143)
print("loading", flush=True)
while not signal.sigpending():
    time.sleep(0.01)
signal.signal(signal.SIGTERM, end)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
"""
    process = start(loading, tmp_path / "words")
    output: Any = process.stdout
    assert output.readline() == "loading\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
