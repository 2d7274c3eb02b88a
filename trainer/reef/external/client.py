"""`PolicyClient`: what an application with its own loop calls. Acting at the server needs neither torch nor Ray."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from reef.errors import ConfigError, ExternalEpisodeError, PolicyServerError
from reef.external.connection import Connection
from reef.external.episodes.reported import ReportedEpisode
from reef.external.wire import Actions, EndEpisode, EpisodeStarted, StartEpisode, Step, Steps
from reef.types import AgentId

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
        self._open: dict[str, ReportedEpisode] = {}
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
            if episode_id in self._open:
                raise ExternalEpisodeError(f"episode {episode_id!r} is open already. End it, or choose another id.")
            wanted = uuid.uuid4().hex if episode_id is None else str(episode_id)
            started: EpisodeStarted = self._acts.start(wanted, training_enabled)
            self._open[started.episode_id] = ReportedEpisode(started.has_agents)
            return started.episode_id

    def get_action(self, episode_id: str | Iterable[str], observation: Any) -> Any:
        """The action for an observation.

        Where an episode has several agents, `observation` is a mapping of each agent that acts to its observation, and
        so are the actions returned. With a list of ids, it is a mapping of each id to that.

        Raises ExternalEpisodeError where an episode is not open, or was lost with its server.
        """
        if isinstance(episode_id, str):
            return self._act({episode_id: observation})[episode_id]
        ids = list(episode_id)
        if len(set(ids)) < len(ids):
            raise ConfigError(f"get_action: {ids} has an id twice. Ask for one action of each episode at a time.")
        if not isinstance(observation, Mapping) or observation.keys() != set(ids):
            raise ConfigError("get_action: with a list of ids give a mapping {id: observation} with the same ids.")
        return self._act({each: observation[each] for each in ids})

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Report an action that the application chose by itself, a value of the action space; of agents a mapping."""
        if action is None:
            raise ConfigError("log_action: action is None. Give the action, or call get_action for one of the policy.")
        self._act({episode_id: observation}, {episode_id: action})

    def log_returns(
        self,
        episode_id: str,
        reward: Any,  # a number; where an episode has several agents a mapping {agent: number}
        info: Mapping[Any, Any] | None = None,  # empty: policies read observations alone
        multiagent_done_dict: Mapping[AgentId, bool] | None = None,  # True: the agent has ended
    ) -> None:
        """Credit a reward to the last action; several add up, and without one it is 0. Sent with the next request.

        The next observation of an agent that is done, if there is one, is its last: no action is chosen for it.

        Raises ConfigError for values that would have no effect, ExternalEpisodeError for a reward before the first
        action, or whose sum is no finite float32. Then nothing is added.
        """
        if info:
            raise ConfigError(f"log_returns: info={info!r} has no effect: policies read observations alone. Leave it.")
        with self._lock:
            self._require(episode_id).credit(episode_id, reward, multiagent_done_dict or {})

    def end_episode(self, episode_id: str, observation: Any, *, truncated: bool = False) -> None:
        """End an episode with its last observation, or {agent: observation}; `truncated`: it was cut off.

        An agent that is cut off without a last observation loses its last step.
        """
        with self._lock:
            episode = self._require(episode_id)
            if episode.ended:
                given = observation if isinstance(observation, Mapping) else {}
                self._send([episode_id], episode.endings(episode_id, given))
            steps = episode.last_steps(observation)
            message = EndEpisode(episode_id=episode_id, steps=steps, truncated=truncated)
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

    def _act(self, observations: Mapping[str, Any], actions: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """By episode the action, or {agent: action}; `actions`: those that the application chose."""
        with self._lock:
            steps: list[Step] = []
            for episode_id, obs in observations.items():
                steps += self._require(episode_id).steps(episode_id, obs, actions and actions[episode_id])
            return self._send(list(observations), steps)

    def _send(self, ids: list[str], steps: list[Step]) -> dict[str, Any]:
        answers: list[Any] = self._unless_lost(ids, lambda: self._acts.act(steps))
        found: dict[str, Any] = {episode_id: {} for episode_id in ids}
        for step, action in zip(steps, answers, strict=True):
            episode = self._open[step.episode_id]
            episode.sent(step)
            if not episode.has_agents:
                found[step.episode_id] = action
            elif not step.done:
                found[step.episode_id][step.agent_id] = action
        return found

    def _forget(self, episode_id: str) -> None:
        self._open.pop(episode_id, None)

    def _require(self, episode_id: str) -> ReportedEpisode:
        episode = self._open.get(episode_id)
        if episode is None:
            raise ExternalEpisodeError(
                f"episode {episode_id!r} is not open: it was never started here, has ended, or was lost with its "
                "server. Call start_episode()."
            )
        return episode

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

    def start(self, episode_id: str, learns: bool) -> EpisodeStarted:
        """Begin an episode at the server."""
        message = StartEpisode(episode_id=episode_id, training_enabled=learns)
        return self.connection.post("episodes", message, EpisodeStarted)

    def act(self, steps: list[Step]) -> list[Any]:
        """The actions for observations of different episodes and agents."""
        return self.connection.post("steps", Steps(steps=steps), Actions).actions

    def end(self, message: EndEpisode) -> None:
        """End an episode at the server."""
        self.connection.post("episodes/end", message, None)

    def forget(self, episode_id: str) -> None:
        """Nothing of it is here."""

    def update_weights(self) -> None:
        """There are none to update."""
        raise ConfigError("update_policy_weights: with inference_mode='remote' the server acts. Use 'local'.")
