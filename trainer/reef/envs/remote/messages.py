"""What a worker and the process of an environment send each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reef import errors
from reef.errors import ReefError, own_traceback

NEW, OLD, AGENTS = "new", "old", "agents"  # of Gymnasium's API, of the old one, of several agents
KINDS = ("", NEW, OLD, AGENTS)  # "": not known yet


class Setup(NamedTuple):
    """What the processes of a worker's environments begin with."""

    settings: Mapping[str, Any]  # those of `AlgorithmConfig` that environments are made with
    spec: Any  # Gymnasium's registration of the environment, where it has one
    worker_index: int
    recreated_worker: bool
    with_infos: bool  # whether infos are sent: somebody reads them


class Begun(NamedTuple):
    """The first message of a process: its environment is made."""

    pid: int
    observation_space: Any
    action_space: Any
    kind: str  # one of KINDS, as all of them are
    is_atari: bool
    agents: Any  # the two spaces of each agent, where it has several


class Stepped(NamedTuple):
    """The answer to "step"."""

    result: Any  # what step() returned
    life_lost: bool
    episode: Any  # what reset() returned, where the episode ended and the seed of the next one was given


class Failed(NamedTuple):
    """The answer to a call that raised."""

    kind: str  # the class
    text: str
    traceback: str  # of the user's code, as people read it; "" where Reef raised

    @classmethod
    def of(cls, error: Exception) -> Failed:
        """The message for an error."""
        return cls(type(error).__name__, str(error), own_traceback(error))

    def error(self) -> Exception:
        """The error to raise in the worker, of the same class or of the same name."""
        own = getattr(errors, self.kind, None)
        if isinstance(own, type) and issubclass(own, ReefError):
            return own(self.text)
        if self.kind == "AttributeError":
            return AttributeError(self.text)
        kind = type(self.kind, (RemoteError,), {})
        error: Exception = kind(self.text)
        error.traceback_text = self.traceback  # type: ignore[attr-defined]
        return error


class RemoteError(Exception):
    """What an environment raised in its process; a subclass has the name of the class."""

    traceback_text = ""
