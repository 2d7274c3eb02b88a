"""The processes of a worker's environments: started, restarted and ended with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

from gymnasium.vector.utils import CloudpickleWrapper

from reef.config import AlgorithmConfig
from reef.config.ignored import OF_FRAMES
from reef.envs.atari.names import registered
from reef.envs.context import env_context
from reef.envs.failures import env_name
from reef.envs.remote.channel import Channel
from reef.envs.remote.env import EnvProcess, RemoteEnv
from reef.envs.remote.messages import KINDS, Setup
from reef.envs.vector import EpisodeListener
from reef.errors import ConfigError, LostProcessError, sentence

# besides those of the group "environment"
SETTINGS = ("num_rollout_workers", "preprocessor_pref", "seed", "in_evaluation", "remote_worker_envs")
PROGRAM = "import sys; sys.path[:] = {path!r}; from reef.envs.remote.server import main; main({descriptor})"
END_S = 5.0  # seconds that the processes have to close their environments


class EnvProcesses:
    """Starts a process for each environment; all end with this one, however it ends."""

    def __init__(
        self, config: AlgorithmConfig, worker_index: int, recreated_worker: bool, listener: EpisodeListener | None
    ) -> None:
        """ConfigError where the environment's settings cannot go to another process."""
        settings = {
            key: getattr(config, key)
            for key in config.declared
            if key in SETTINGS or (config.groups.get(key) == "environment" and key != "env_task_fn")
        }
        settings["model"] = {key: getattr(config.model, key) for key in OF_FRAMES}
        setup = Setup(settings, registered(config.env), worker_index, recreated_worker, listener is not None)
        self._config, self._setup, self.listener = config, setup, listener
        self._server: subprocess.Popen[bytes] | None = None
        self._link: Channel
        self._kind = ""  # found out with the first environment
        self._first: RemoteEnv | None = None  # made, and not used yet

    def first(self) -> RemoteEnv:
        """The first environment, to look at; it is used later."""
        self._first = self._first or self._started(0)
        return self._first

    def __call__(self, index: int) -> Any:
        """Start the process of an environment, which is made while others are started."""
        env, self._first = (self._first, None) if self._first and index == 0 else (self._started(index), self._first)
        if self.listener is not None:
            setup = self._setup
            context = env_context(self._config, setup.worker_index, index, recreated=setup.recreated_worker)
            self.listener.made(index, env, context)
        return env

    agents = __call__  # of several agents

    def _started(self, index: int) -> RemoteEnv:
        if self._server is None or self._server.poll() is not None:
            self._start_server()
        own, other = socket.socketpair()
        name = f"environment {env_name(self._config.env)!r}: the process of environment {index}"
        with other:
            try:
                self._link.start_process(index.to_bytes(4, "big") + bytes([KINDS.index(self._kind)]), other)
            except OSError as error:
                raise LostProcessError(f"{name} cannot be started: {error}") from error
        env = RemoteEnv(EnvProcess(Channel(own), f"{name} of worker {self._setup.worker_index}"))
        if not self._kind:
            self._kind = env.process.begun.kind  # waits until it is made and checked
        return env

    def _start_server(self) -> None:
        own, other = socket.socketpair()
        self._link = Channel(own)
        with other:
            program = PROGRAM.format(path=sys.path, descriptor=other.fileno())
            self._server = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-c", program],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process, which ends the others
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        try:
            wrapped: Any = CloudpickleWrapper  # it takes any object, functions of no module too
            self._link.send(wrapped(self._setup))
        except OSError:
            raise
        except Exception as error:
            raise ConfigError(
                f"remote_worker_envs=True: environment {env_name(self._config.env)!r} cannot go to a process of its "
                f"own: {type(error).__name__}: {sentence(error)} Give env and env_config values that can be pickled, "
                "or leave remote_worker_envs out."
            ) from error

    def end(self) -> None:
        """End all processes, those that hang too."""
        if self._server is None:
            return
        self._link.close()
        try:
            self._server.wait(END_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None
