"""The episodes in progress at a server."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from reef.errors import EpisodeLostError, ExternalEpisodeError
from reef.external.episodes.episode import ExternalEpisode
from reef.external.listening.refusals import BusyError
from reef.external.wire import MessageError

log = logging.getLogger(__name__)
LONGEST_ID = 200  # characters
GOES_ON_S = 3.0  # seconds after its last request in which an episode is taken to go on


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much clients may ask for."""

    episodes: int  # open at the same time
    episode_timeout_s: float  # without a request for it
    request_bytes: int
    connections: int


class OpenEpisodes:
    """Episodes by id; those that no request came for in a long time are dropped."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._episodes: dict[str, ExternalEpisode] = {}
        self.held = 0  # steps that all of them hold

    def __len__(self) -> int:
        return len(self._episodes)

    def start(self, episode_id: str | None, learns: bool) -> str:
        """Begin an episode, and return its id; None: one of its own.

        Raises BusyError where there are too many, ExternalEpisodeError where it is open already, MessageError for an
        id that is too long.
        """
        self.drop_idle()
        if len(self._episodes) >= self._limits.episodes:
            raise BusyError(f"max_episodes={self._limits.episodes} are open")
        found = uuid.uuid4().hex if episode_id is None else episode_id
        if not 0 < len(found) <= LONGEST_ID:
            raise MessageError(f"episode_id has {len(found)} characters, expected 1 to {LONGEST_ID}")
        if found in self._episodes:
            raise ExternalEpisodeError(f"episode {found!r} is open already. End it, or choose another id.")
        self._episodes[found] = ExternalEpisode(found, learns)
        return found

    def found(self, episode_id: str) -> ExternalEpisode:
        """An open episode, for which a request came; EpisodeLostError where there is none."""
        episode = self._episodes.get(episode_id)
        if episode is None or self._is_idle(episode):
            self.drop(episode_id)
            raise EpisodeLostError(
                f"episode {episode_id!r} is not open here: it was never started, has ended, had no request in "
                f"episode_timeout={self._limits.episode_timeout_s:g} s, or the server was started again. Start another."
            )
        episode.used_at = time.monotonic()
        return episode

    @contextmanager
    def counted(self, episode: ExternalEpisode) -> Iterator[None]:
        """Count the steps that an open episode holds more, or fewer, after the block."""
        before = episode.held
        yield
        if self._episodes.get(episode.episode_id) is episode:
            self.held += episode.held - before

    def any_goes_on(self) -> bool:
        """Whether a request came a short while ago for an episode that holds steps."""
        since = time.monotonic() - GOES_ON_S
        return any(episode.held and episode.used_at > since for episode in self._episodes.values())

    def drop(self, episode_id: str) -> None:
        """Forget an episode, if it is open."""
        episode = self._episodes.pop(episode_id, None)
        self.held -= episode.held if episode else 0

    def drop_all(self) -> None:
        """Forget all episodes."""
        for episode_id in list(self._episodes):
            self.drop(episode_id)

    def drop_idle(self) -> None:
        """Forget episodes that no request came for in a long time: their application is gone."""
        for episode_id in [key for key, episode in self._episodes.items() if self._is_idle(episode)]:
            self.drop(episode_id)
            log.warning("episode %r was dropped: no request for it in episode_timeout seconds", episode_id)

    def _is_idle(self, episode: ExternalEpisode) -> bool:
        return episode.used_at < time.monotonic() - self._limits.episode_timeout_s
