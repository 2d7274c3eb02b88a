"""The program that makes a process for each environment of a worker, by forks of itself, and what runs in them."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium as gym
import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.atari.frames import check_frame_settings
from reef.envs.atari.lives import lives_of
from reef.envs.atari.names import is_atari, registered
from reef.envs.failures import env_name
from reef.envs.loop import flag
from reef.envs.make import EnvFactory
from reef.envs.multi_agent import ALL, agent_spaces, is_multi_agent
from reef.envs.remote.channel import LENGTH, Channel
from reef.envs.remote.messages import AGENTS, KINDS, NEW, OLD, Begun, Failed, Setup, Stepped

REQUEST = 5  # bytes: the index of the environment, and which of KINDS it is
GLOBAL_GENERATORS = 4  # keeps their seeds apart from those of episodes
PR_SET_PDEATHSIG = 1


def main(descriptor: int) -> None:
    """Fork a process for each request that comes through the socket, until it is closed at the other end."""
    link = Channel(socket.socket(fileno=descriptor))
    setup: Setup = link.receive(LENGTH).fn
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave nothing behind
    own = os.getpid()
    while (asked := link.next_process(REQUEST)) is not None:
        request, channel = asked
        if os.fork() == 0:
            link.close()
            _live_no_longer_than(own)
            index = int.from_bytes(request[:4], "big")
            _ServedEnv(setup, index, channel).run(KINDS[request[4]])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        channel.close()


def _live_no_longer_than(parent: int) -> None:
    """Have this process killed when its parent ends: one that hangs in a step would stay."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class _ServedEnv:
    """One environment, which does what the worker asks for."""

    def __init__(self, setup: Setup, index: int, channel: Channel) -> None:
        self._setup, self._index, self._channel = setup, index, channel
        self._config = AlgorithmConfig().assign(setup.settings)
        self._env: Any = None
        self._lives: Any = None

    def run(self, kind: str) -> None:
        """Make the environment and answer until the worker is gone."""
        try:
            begun: Any = self._make(kind)
        except Exception as error:
            begun = Failed.of(error)
        with suppress(OSError, EOFError):
            self._channel.send(begun)
            while self._env is not None:
                name, *arguments = self._channel.receive()
                if name == "close":
                    break
                self._answer(name, arguments)
        if self._env is not None:
            with suppress(Exception):
                self._env.close()

    def _make(self, kind: str) -> Begun:
        setup, config = self._setup, self._config
        if setup.spec is not None:
            registered(config.env)  # imports what registers it, if anything does
            gym.registry[setup.spec.id] = setup.spec
        # forks of one process would all draw the same numbers
        seeds = None if config.seed is None else [config.seed, setup.worker_index, self._index, GLOBAL_GENERATORS]
        drawn = np.random.SeedSequence(seeds).generate_state(2)
        random.seed(int(drawn[0]))
        np.random.seed(drawn[1])
        old_api = kind == OLD if kind in (NEW, OLD) else None
        factory = EnvFactory(config, setup.worker_index, setup.recreated_worker, None, old_api)
        name = env_name(config.env)
        if kind == AGENTS or (not kind and setup.spec is None and is_multi_agent(factory.first())):
            self._env = factory.agents(self._index)
            check_frame_settings(config, self._env, name)
            return Begun(os.getpid(), None, None, AGENTS, False, agent_spaces(self._env, name))
        self._env = env = factory(self._index)
        check_frame_settings(config, env, name)
        self._lives = lives_of(env)
        kind = OLD if factory.old_api else NEW
        return Begun(os.getpid(), env.observation_space, env.action_space, kind, is_atari(config, env), None)

    def _answer(self, name: str, arguments: list[Any]) -> None:
        try:
            answer = getattr(self, name)(*arguments)
        except Exception as error:
            answer = Failed.of(error)
        try:
            self._channel.send(answer)
        except OSError:  # the worker is gone
            raise
        except Exception as error:  # it cannot be packed
            self._channel.send(Failed.of(error))

    def step(self, action: Any, next_seed: int | None, cut: bool) -> Stepped:
        """Step, and begin the next episode where this one ends and `next_seed` is given."""
        result = self._env.step(action)
        next_episode = None
        if isinstance(result, tuple) and len(result) == 5:
            if not self._setup.with_infos:
                result = (*result[:4], {})
            if next_seed is not None and (cut or any(map(_ends, result[2:4]))):
                next_episode = self._begun_ahead(next_seed)
        return Stepped(result, self._lives is not None and self._lives.life_lost, next_episode)

    def _begun_ahead(self, seed: int) -> Any:
        try:
            return self.reset(seed, {})
        except Exception as error:  # is raised when the reset is asked for
            return Failed.of(error)

    def reset(self, seed: int, options: dict[str, Any]) -> Any:
        """Begin an episode."""
        result = self._env.reset(seed=seed, **options)
        if not self._setup.with_infos and isinstance(result, tuple) and len(result) == 2:
            return result[0], {}
        return result

    def read(self, name: str) -> Any:
        """An attribute of the environment or of what it wraps, and whether it can be called."""
        value = self._attribute(name)
        if callable(value):
            return None, True
        try:
            ForkingPickler.dumps(value)
        except Exception as error:
            raise AttributeError(f"{name} of the environment is in its process and cannot be sent: {error}") from error
        return value, False

    def write(self, name: str, value: Any) -> None:
        """Set an attribute where it is, or else of the innermost environment."""
        env = self._env
        while isinstance(env, gym.Wrapper) and name not in vars(env):
            env = env.env
        setattr(env, name, value)

    def call(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a method of the environment returns."""
        return self._attribute(name)(*arguments, **keywords)

    def _attribute(self, name: str) -> Any:
        env = self._env
        while isinstance(env, gym.Wrapper) and not hasattr(env, name):
            env = env.env
        return getattr(env, name)


def _ends(flags: Any) -> bool:
    """Whether `terminated` or `truncated`, of one agent or of several, ends an episode."""
    return bool(flags.get(ALL)) if isinstance(flags, Mapping) else flag("ended", flags)
