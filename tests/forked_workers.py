"""Ray's workers as forks of a process that has imported PyTorch, most of what a test with Ray would take.

Such a worker is one as any other: a process that runs Ray's default_worker.py with the arguments, the environment, the
folder and the files that the raylet gave, and that ends with the process that the raylet knows. Workers that start as
users' do belong to tests of `reef` commands and of images.

As a script it forks workers, or asks the process that does for one, in place of the interpreter that a raylet starts.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import random
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Without Ray: its library reads the environment when it is imported, and each worker has another one.
IMPORTED = ("numpy", "torch", "gymnasium", "reef.rollout.worker", "reef.learn.learner")
CONTEXT = "--serialized-runtime-env-context="
READ_EARLY = re.compile(r"\b(CUDA|HIP|KMP|MKL|NUMPY|OMP|OPENBLAS|PYTHON|PYTORCH|TORCH)")  # before a fork has its own


@contextmanager
def forking_python(folder: Path) -> Iterator[Path]:
    """Yield a Python whose raylets fork their workers, and those of all processes that it starts.

    `folder`: for it and for a socket; its path is to be short.
    """
    own, address, command = Path(__file__), folder / "socket", folder / "bin" / "python"
    command.parent.mkdir()
    for name in ("lib", "pyvenv.cfg"):  # an environment as that of this process, by a path that no shell would split
        (folder / name).symlink_to(Path(sys.prefix, name))
    command.write_text(
        "#!/usr/bin/env bash\n"
        'case "$1" in\n'
        f'*/default_worker.py) exec "{sys.executable}" -I -S "{own}" ask "{address}" "$@";;\n'
        f'*/setup_worker.py) exec "{sys.executable}" -I -S "{own}" set-up "{address}" "$@";;\n'
        f'*) exec -a "$0" "{sys.executable}" "$@";;\n'
        "esac\n"
    )
    command.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen(64)
        number = listening.fileno()
        forking = subprocess.Popen([sys.executable, own, "fork", str(number)], stdin=subprocess.PIPE, pass_fds=[number])
    try:
        yield command
    finally:
        forking.communicate(timeout=30)  # it ends with its input


@contextmanager
def raylets_with(python: Path) -> Iterator[None]:
    """Have the raylets that this process itself starts use that Python."""
    from ray._private import services

    services.sys = _SysWith(executable=str(python))
    try:
        yield
    finally:
        services.sys = sys


class _SysWith:
    """The module `sys`, with other values of some names."""

    def __init__(self, **other: Any) -> None:
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


def fork(number: int) -> None:
    """Fork a worker for each process that asks at the socket with this number, until the input of this one ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # so that collections leave the memory shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    with socket.socket(fileno=number) as listening:
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asking, _ = listening.accept()
            with asking, asking.makefile("rb") as lines:
                _, files, _, _ = socket.recv_fds(asking, 1, 3)
                given = json.loads(lines.readline())
                if not os.fork():
                    listening.close()
                    end_with(asking)
                    become_worker(files, **given)
                for file in files:
                    os.close(file)


def end_with(asking: socket.socket) -> None:
    """Have this process killed when the one at the other end of this socket is."""
    fcntl.fcntl(asking, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(asking, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(asking, fcntl.F_SETFL, os.O_ASYNC)


def become_worker(files: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Go on as the process that asked would have, with its standard input, output and error."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [place for place in named if place and place not in sys.path]
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].seed()
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).parent)
    code = 1
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def ask(address: str, arguments: list[str]) -> None:
    """Ask for a worker with what this process was given, and wait until it has ended."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(address)
        given = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(asking, [b"\n"], [0, 1, 2])
        asking.sendall(json.dumps(given).encode() + b"\n")
        asking.recv(1)


def set_up(address: str, arguments: list[str]) -> None:
    """Ask for a worker with variables of its own, as setup_worker.py would start one; which is for all else."""
    (text,) = (each.removeprefix(CONTEXT) for each in arguments if each.startswith(CONTEXT))
    context = json.loads(text)
    variables, _ = context.pop("env_vars"), context.pop("py_executable")
    if any(context.values()) or READ_EARLY.search(" ".join(variables)):
        os.execv(sys.executable, [sys.executable, *arguments])
    for name, value in variables.items():
        os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
    ask(address, [each for each in arguments[1:] if not each.startswith((CONTEXT, "--language="))])


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        fork(int(sys.argv[2]))
    elif sys.argv[1] == "ask":
        ask(sys.argv[2], sys.argv[3:])
    else:
        set_up(sys.argv[2], sys.argv[3:])
