"""What other processes print is shown line by line, with their names, whatever they print."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reef.output import LINE_BYTES, NAME, SOCKET, WINDOW_LINES, OutputReader, Quota, Stream, named_stdout, output_shown

START = """
import logging, os, signal, subprocess, sys
from reef.output import full_name, send_output
send_output(full_name({name!r}))
logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
"""


class Shown:
    """What a reader has written."""

    def __init__(self) -> None:
        self.text = ""
        self.reader = OutputReader(self.write)

    def write(self, text: str) -> None:
        self.text += text

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def run(self, program: str, name: str = "worker 1") -> None:
        """Run a process to its end, whatever that is; all of its own lines are shown then."""
        code = START.format(name=name) + "sys.stdin.read()\n" + program
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        self.wait_for(lambda: bool(self.reader._workers))
        process.communicate(timeout=60)
        self.wait_for(lambda: not self.reader._workers)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, self.text[-2000:]
            time.sleep(0.01)


@pytest.fixture
def shown() -> Iterator[Shown]:
    made = Shown()
    yield made
    made.reader.stop()


def test_stdout_stderr_logging_and_children_are_shown_with_the_workers_name(shown: Shown) -> None:
    shown.run(
        "print('out'); print('err', file=sys.stderr); logging.getLogger('env').warning('log'); os.write(1, b'raw\\n')\n"
        "subprocess.run(['echo', 'child'])"
    )
    expected = ["out", "raw", "child", "err", "WARNING env: log"]
    assert sorted(shown.lines) == sorted(f"(worker 1) {text}" for text in expected)


def test_lines_are_whole_whatever_a_process_writes(shown: Shown) -> None:
    shown.run(
        "import time\n"
        "parts = [b'a pa', b'rt', b'ial line\\n', b'\\r10 %', b'\\r20 %\\r\\n\\n']\n"
        "for part in (*parts, b'b\\xff\\x00\\x1b[2J\\tt\\n', b'no end'): os.write(1, part); time.sleep(0.05)"
    )
    expected = ["a partial line", "10 %", "20 %", "b\\xff\\x00\\x1b[2J\tt", "no end"]
    assert shown.lines == [f"(worker 1) {text}" for text in expected]


def test_a_long_line_is_cut(shown: Shown) -> None:
    shown.run(f"os.write(1, b'x' * 10_000_000 + b'\\n' + b'y' * {LINE_BYTES} + b'\\nnext\\n')")
    long, just, after = shown.lines
    assert long == f"(worker 1) {'x' * LINE_BYTES} [cut after {LINE_BYTES} bytes]"
    assert just == f"(worker 1) {'y' * LINE_BYTES}"
    assert after == "(worker 1) next"


def test_what_a_process_printed_before_it_was_killed_is_shown_and_the_next_one_has_its_name(shown: Shown) -> None:
    shown.run("print('before'); os.kill(os.getpid(), signal.SIGKILL)")
    shown.run("import faulthandler; faulthandler.enable(); os.abort()")
    shown.run("print('after')")
    assert shown.lines[0] == "(worker 1) before"
    assert "(worker 1) Fatal Python error: Aborted" in shown.lines
    assert shown.lines[-1] == "(worker 1) after"


def test_a_flood_is_cut_and_said_and_other_workers_are_not_held_up(shown: Shown) -> None:
    shown.run("for i in range(30_000): print('line', i, 'of a flood')\nprint('error', file=sys.stderr)", "worker 2")
    shown.run("print('quiet')")
    flood = [line for line in shown.lines if line.startswith("(worker 2) ")]
    assert flood[0] == "(worker 2) line 0 of a flood"
    assert len(flood) == WINDOW_LINES + 1
    assert flood[-1] == f"(worker 2) [{30_001 - WINDOW_LINES} lines dropped: a worker may print {WINDOW_LINES} in 10 s]"
    assert shown.lines[-1] == "(worker 1) quiet"


def test_a_worker_that_has_been_quiet_may_print_again() -> None:
    now, written = 0.0, list[str]()
    quota = Quota("worker 1", written.append, lambda: now)
    lines = [b"x"] * (WINDOW_LINES + 7)
    quota.show(lines)
    now = 9.9
    quota.look()
    assert "".join(written).count("\n") == WINDOW_LINES, "nothing is said while the flood may go on"
    now = 10.1
    quota.look()
    assert "7 lines dropped" in written[-1]
    quota.show([b"y"])
    assert written[-1] == "(worker 1) y\n"


def test_workers_of_a_trial_are_named_after_it(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "trial_0001")
    shown.run("print('text')", "worker 3")
    assert shown.lines == ["(trial_0001 worker 3) text"]


def test_what_is_printed_when_the_reader_stops_is_shown(shown: Shown) -> None:
    program = START.format(name="worker 1") + "print('early')\nos.write(1, b'half')\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    shown.wait_for(lambda: "early" in shown.text)
    shown.reader.stop()
    process.communicate(timeout=20)
    assert shown.lines == ["(worker 1) early", "(worker 1) half"]
    assert SOCKET not in os.environ


def test_without_a_reader_all_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for path in ("", str(tmp_path / "gone")):
        monkeypatch.setenv(SOCKET, path)
        program = START.format(name="worker 1") + "print('text')"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "text\n"
        assert ("no reader at" in done.stderr) == bool(path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux alone has a disk that is always full")
def test_a_full_disk_behind_stderr_costs_the_lines_and_nothing_else() -> None:
    program = f"""
import subprocess, sys
from reef.output import output_shown
with output_shown():
    code = {START.format(name="worker 1") + "for i in range(20_000): print('text' * 20)"!r}
    worker = subprocess.run([sys.executable, "-c", code], timeout=60)
print(worker.returncode)
"""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True, timeout=90
        )
    assert done.stdout == "0\n"


def test_where_no_socket_can_be_made_nothing_else_fails(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reef.output.tempfile.TemporaryDirectory", full)
    with output_shown():
        assert SOCKET not in os.environ
    assert "No space left on device" in caplog.text


def test_this_process_can_print_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    with named_stdout("head") as stream:
        print("a", 1, file=stream)
        print("no end", end="", file=stream)
        for _ in range(WINDOW_LINES + 2):
            print(file=stream, end="x\n")
        assert stream.fileno() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == ["(head) a 1", "(head) no endx", "(head) x"]
    assert lines[-1].startswith("(head) [3 lines dropped")


def test_a_flood_without_line_ends_is_not_kept() -> None:
    stream = Stream(Quota("worker 1", lambda text: None))
    for _ in range(100):
        stream.feed(b"x" * 65536)
    assert len(stream._rest) == LINE_BYTES + 1
