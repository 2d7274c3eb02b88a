"""The worker's side of an environment in a process of its own."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from reef.envs.remote.channel import Channel
from reef.envs.remote.messages import Begun, Failed, Stepped
from reef.errors import LostProcessError

CLOSE_S = 5.0  # seconds an environment has to close itself


class EnvProcess:
    """The process of one environment: asked for a step or an episode, which it may do while others are asked."""

    def __init__(self, channel: Channel, name: str) -> None:
        """`name`: what messages call it."""
        self._channel, self._name = channel, name
        self._begun: Begun | None = None
        self._asked = ""  # the call whose answer was not taken yet: "step" or "reset"
        self._early: Any = None  # this answer, where it had to be read
        self._seed: int | None = None  # of the episode that was asked to begin, or would begin after the step
        self._episode: Any = None  # what its reset returned
        self._close_by = math.inf  # by `time.monotonic`, once it was asked to close
        self.life_lost = False  # with the last step, in a game that goes on

    def fileno(self) -> int:
        """What can be read from once an answer is there."""
        return self._channel.fileno()

    @property
    def begun(self) -> Begun:
        """What it said of its environment; waits until that is made, and raises what was raised thereby."""
        if self._begun is None:
            self._begun = self._value(self._read())
        return self._begun

    def ask_step(self, action: Any, next_seed: int | None = None, *, cut: bool = False) -> None:
        """Ask for a step; where the episode ends with it, or is `cut`, the next one begins, if it has a seed."""
        self._ask("step", action, next_seed, cut)
        self._seed, self._episode = next_seed, None

    def step(self, action: Any) -> Any:
        """What the step returned that was asked for, or another one."""
        if self._asked != "step":
            self.ask_step(action)
        answer: Stepped = self._answer()
        self.life_lost, self._episode = answer.life_lost, answer.episode
        return answer.result

    def ask_reset(self, seed: int) -> None:
        """Ask for an episode to begin."""
        self._drop_answer()
        self._ask("reset", seed, {})
        self._seed, self._episode = seed, None

    def reset(self, *, seed: int, **options: Any) -> Any:
        """What the reset returned that was asked for with this seed, or another one."""
        known = seed == self._seed and not options
        episode, self._seed, self._episode = self._episode, None, None
        if known and episode is not None:
            return self._value(episode)
        if not (known and self._asked == "reset"):
            self._drop_answer()
            self._ask("reset", seed, options)
        return self._answer()

    @property
    def has_answer(self) -> bool:
        """Whether the answer to what was asked is here already."""
        return self._early is not None

    def take(self) -> bool:
        """Read the answer to what was asked; returns whether the process can be asked again."""
        if self._asked and self._early is None:
            self._early = self._read()
        return not isinstance(self._early, LostProcessError)

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer to another call, at once."""
        self.take()
        self._send(name, *arguments)
        return self._value(self._read())

    def close(self) -> None:
        """Have the environment close itself; the process is killed where that does not end it."""
        self.ask_close()
        with suppress(OSError, EOFError):
            while self._channel.has_message(max(self._close_by - time.monotonic(), 0.0)):
                message = self._channel.receive()
                self._begun = self._begun or (message if isinstance(message, Begun) else None)
            # without its first message the process is not known: it ends with those of the worker
            if self._begun is not None:
                os.kill(self._begun.pid, signal.SIGKILL)
        self._channel.close()

    def ask_close(self) -> None:
        """Ask the environment, once, to close itself within `CLOSE_S`, and its process to end."""
        if self._close_by == math.inf:
            self._close_by = time.monotonic() + CLOSE_S
            with suppress(OSError):
                self._channel.send(("close",))

    def _ask(self, name: str, *arguments: Any) -> None:
        self._send(name, *arguments)
        self._asked = name

    def _send(self, *call: Any) -> None:
        _ = self.begun
        with suppress(OSError):  # it has ended: so says the answer
            self._channel.send(call)

    def _answer(self) -> Any:
        answer = self._read() if self._early is None else self._early
        self._asked, self._early = "", None
        return self._value(answer)

    def _drop_answer(self) -> None:
        if self._asked:
            with suppress(Exception):
                self._answer()

    def _read(self) -> Any:
        try:
            return self._channel.receive()
        except (EOFError, OSError):
            pid = f" (pid {self._begun.pid})" if self._begun else ""
            return LostProcessError(f"{self._name}{pid} has ended: it was killed, ran out of memory or crashed.")

    def _value(self, answer: Any) -> Any:
        if isinstance(answer, Failed):
            raise answer.error()
        if isinstance(answer, LostProcessError):
            raise answer
        return answer


class RemoteEnv:
    """Looks like the environment of a process: attributes are read and set, and methods called, where it is."""

    process: EnvProcess

    def __init__(self, process: EnvProcess) -> None:
        object.__setattr__(self, "process", process)

    @property
    def observation_space(self) -> Any:
        """The environment's."""
        return self.process.begun.observation_space

    @property
    def action_space(self) -> Any:
        """The environment's."""
        return self.process.begun.action_space

    @property
    def unwrapped(self) -> RemoteEnv:
        """Itself: it has the attributes of what is wrapped too."""
        return self

    def step(self, action: Any) -> Any:
        """What the step returned that was asked for, or another one."""
        return self.process.step(action)

    def reset(self, *, seed: int, **options: Any) -> Any:
        """What the reset returned that was asked for with this seed, or another one."""
        return self.process.reset(seed=seed, **options)

    def close(self) -> None:
        """Close the environment and end its process."""
        self.process.close()

    def __getattr__(self, name: str) -> Any:
        """An attribute of the environment, or what calls its method there."""
        if name.startswith("_"):
            raise AttributeError(f"{name}: the environment runs in a process of its own, which has it")
        value, is_method = self.process.call("read", name)
        return self._method(name) if is_method else value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the environment."""
        self.process.call("write", name, value)

    def _method(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **keywords: self.process.call("call", name, arguments, keywords)


def ask_to_close(envs: Sequence[Any]) -> None:
    """Ask all that have processes of their own to close, so that those that hang are waited for together."""
    for env in envs:
        if isinstance(env, RemoteEnv):
            env.process.ask_close()
