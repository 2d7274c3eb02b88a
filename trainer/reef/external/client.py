"""`PolicyClient`: what an application with its own loop calls. Acting at the server needs neither torch nor Ray."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from reef.errors import ConfigError, ExternalEpisodeError, PolicyServerError
from reef.external.connection import Connection
from reef.external.episodes.episode import check_reward
from reef.external.wire import Actions, EndEpisode, EpisodeStarted, StartEpisode, Step, Steps

T = TypeVar("T")
LOCAL, REMOTE = "local", "remote"
UPDATE_INTERVAL_S = 10.0
TOKEN_ENV = "REEF_POLICY_TOKEN"  # noqa: S105


class PolicyClient:
    """Asks a policy server for actions, or acts with a copy of its policy, and reports what happened.

    Several threads may share a client; requests for one episode come one after the other.
    """

    def __init__(
        self,
        address: str,  # of the server, such as "http://localhost:9900"
        inference_mode: str = LOCAL,  # "local": with a copy of the policy; "remote": the server acts
        # seconds between fetches of weights; None: only by hand; it has a meaning for "local" alone
        update_interval: float | None = UPDATE_INTERVAL_S,
        *,
        token: str | None = None,  # that the server asks for; None: of the environment variable REEF_POLICY_TOKEN
        timeout_s: float = 300.0,  # for which a server that is busy or does not answer is asked again
    ) -> None:
        """Connects at the first request, "local" at once.

        Raises:
            ConfigError (a ValueError): another mode, or an argument that does not go with it.
            PolicyServerError: the server does not answer, or refuses.
        """
        if inference_mode not in (LOCAL, REMOTE):
            raise ConfigError(f"inference_mode={inference_mode!r}: expected 'local' or 'remote'.")
        if update_interval is not None and not update_interval >= 0:
            raise ConfigError(f"update_interval={update_interval!r}: expected seconds, or None to update by hand.")
        if inference_mode == REMOTE and update_interval not in (None, UPDATE_INTERVAL_S):
            raise ConfigError(
                f"update_interval={update_interval!r}: with inference_mode='remote' the server acts, and no weights "
                "are fetched. Leave it out, or use 'local'."
            )
        self.inference_mode = inference_mode
        connection = Connection(address, os.environ.get(TOKEN_ENV) if token is None else token, timeout_s)
        self._lock = threading.RLock()
        self._pending: dict[str, float] = {}  # by open episode: rewards since its last action
        self._have_acted: set[str] = set()  # open episodes that have an action
        self._acts: RemoteActing | Any
        if inference_mode == REMOTE:
            self._acts = RemoteActing(connection)
        else:
            from reef.external.local_acting import LocalActing  # which loads torch

            self._acts = LocalActing(connection, update_interval)

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begin an episode and return its id; None: one of its own. Without `training_enabled` nobody learns from it.

        Raises ExternalEpisodeError where it is open already.
        """
        with self._lock:
            if episode_id in self._pending:
                raise ExternalEpisodeError(f"episode {episode_id!r} is open already. End it, or choose another id.")
            found: str = self._acts.start(uuid.uuid4().hex if episode_id is None else str(episode_id), training_enabled)
            self._pending[found] = 0.0
            return found

    def get_action(self, episode_id: str | Iterable[str], observation: Any) -> Any:
        """The action for an observation.

        With a list of ids, `observation` is a mapping of each to its observation, and so are the actions returned.
        Raises ExternalEpisodeError where an episode is not open, or was lost with its server.
        """
        if isinstance(episode_id, str):
            return self._act([Step(episode_id=episode_id, obs=observation)])[0]
        ids = list(episode_id)
        if len(set(ids)) < len(ids):
            raise ConfigError(f"get_action: {ids} has an id twice. Ask for one action of each episode at a time.")
        if not isinstance(observation, Mapping) or observation.keys() != set(ids):
            raise ConfigError("get_action: with a list of ids give a mapping {id: observation} with the same ids.")
        return dict(zip(ids, self._act([Step(episode_id=each, obs=observation[each]) for each in ids]), strict=True))

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Report an action that the application chose by itself, a value of the action space."""
        if action is None:
            raise ConfigError("log_action: action is None. Give the action, or call get_action for one of the policy.")
        self._act([Step(episode_id=episode_id, obs=observation, action=action)])

    def log_returns(
        self,
        episode_id: str,
        reward: float,
        info: Mapping[str, Any] | None = None,  # empty: policies read observations alone
        multiagent_done_dict: Mapping[Any, bool] | None = None,  # empty: an episode has one agent
    ) -> None:
        """Credit a reward to the last action; several add up, and without one it is 0. Sent with the next request.

        Raises ConfigError for values that would have no effect, ExternalEpisodeError for a reward before the first
        action, or whose sum is no finite float32. Such a reward is not added.
        """
        if info:
            raise ConfigError(f"log_returns: info={info!r} has no effect: policies read observations alone. Leave it.")
        if multiagent_done_dict:
            raise ConfigError(
                f"log_returns: multiagent_done_dict={multiagent_done_dict!r}: an episode has one agent. Start an "
                "episode for each agent, and leave it out."
            )
        with self._lock:
            self._require(episode_id)
            has_acted, before = episode_id in self._have_acted, self._pending[episode_id]
            check_reward(episode_id, float(reward), before, has_acted=has_acted)
            self._pending[episode_id] = before + float(reward)

    def end_episode(self, episode_id: str, observation: Any, *, truncated: bool = False) -> None:
        """End an episode with its last observation; `truncated`: it was cut off, as by a time limit."""
        with self._lock:
            self._require(episode_id)
            message = EndEpisode(
                episode_id=episode_id, obs=observation, reward=self._pending[episode_id], truncated=truncated
            )
            self._unless_lost([episode_id], lambda: self._acts.end(message))
            self._forget(episode_id)

    def update_policy_weights(self) -> None:
        """Fetch the newest weights now; ConfigError with "remote", where the server acts with them."""
        with self._lock:
            self._acts.update_weights()

    def close(self) -> None:
        """Close the connection; open episodes are dropped by the server after a while."""
        with self._lock:
            self._acts.connection.close()

    def _act(self, steps: list[Step]) -> list[Any]:
        with self._lock:
            ids = [step.episode_id for step in steps]
            for step in steps:
                self._require(step.episode_id)
                step.reward = self._pending[step.episode_id]
            actions: list[Any] = self._unless_lost(ids, lambda: self._acts.act(steps))
            self._pending.update(dict.fromkeys(ids, 0.0))
            self._have_acted.update(ids)
            return actions

    def _forget(self, episode_id: str) -> None:
        self._pending.pop(episode_id, None)
        self._have_acted.discard(episode_id)

    def _require(self, episode_id: str) -> None:
        if episode_id not in self._pending:
            raise ExternalEpisodeError(
                f"episode {episode_id!r} is not open: it was never started here, has ended, or was lost with its "
                "server. Call start_episode()."
            )

    def _unless_lost(self, ids: Iterable[str], call: Callable[[], T]) -> T:
        """What `call` returns; after an error of the server the episodes are not open any more.

        They go on where a value or a call was wrong.
        """
        try:
            return call()
        except PolicyServerError as error:
            if type(error) is not ExternalEpisodeError:
                for episode_id in ids:
                    self._forget(episode_id)
                    self._acts.forget(episode_id)
            raise


class RemoteActing:
    """The server acts."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def start(self, episode_id: str, learns: bool) -> str:
        """Begin an episode at the server."""
        message = StartEpisode(episode_id=episode_id, training_enabled=learns)
        return self.connection.post("episodes", message, EpisodeStarted).episode_id

    def act(self, steps: list[Step]) -> list[Any]:
        """The actions for observations of different episodes."""
        return self.connection.post("steps", Steps(steps=steps), Actions).actions

    def end(self, message: EndEpisode) -> None:
        """End an episode at the server."""
        self.connection.post("episodes/end", message, None)

    def forget(self, episode_id: str) -> None:
        """Nothing of it is here."""

    def update_weights(self) -> None:
        """There are none to update."""
        raise ConfigError("update_policy_weights: with inference_mode='remote' the server acts. Use 'local'.")
