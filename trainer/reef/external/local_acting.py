"""Acting in the client, with a copy of the server's policy."""

from __future__ import annotations

import threading
import time
from typing import Any

import safetensors.numpy
from safetensors import SafetensorError

from reef.algorithms.registry import config_class
from reef.envs.agents.spaces_alone import SpacesAlone
from reef.errors import ConfigError, EpisodeLostError, ExternalEpisodeError, PolicyServerError
from reef.external.connection import Connection
from reef.external.episodes.episode import ExternalEpisode, Played
from reef.external.fragments import as_messages
from reef.external.policies import PoliciesOfApplications, actions_of, rows_by_episode
from reef.external.wire import EndEpisode, EpisodeStarted, PublishedWeights, Specification, Step
from reef.rollout.policy_runner import PolicyRunner

FETCHES_APART = 10  # times as long as a fetch of weights takes, at least


class LocalActing:
    """Acts with the policy that the server described, and sends whole fragments."""

    def __init__(self, connection: Connection, update_interval: float | None) -> None:
        """Fetches the policy; raises as `Connection.get`, and ConfigError where it cannot be made here."""
        self.connection, self._update_interval = connection, update_interval
        self._episodes: dict[str, ExternalEpisode] = {}
        self._version, self._timestep, self._updated_at = -1, 0, 0.0
        self._newest, self._took_s = -1, 0.0  # version that the server named; seconds that a fetch took
        specification = connection.get("policy", Specification)
        settings = config_class(specification.algorithm).from_dict(specification.settings)
        config = settings.debugging(seed=None).freeze()  # clients explore in different ways
        runners = {
            policy_id: PolicyRunner(config, 0, own, policy_id) for policy_id, own in SpacesAlone(config).columns.items()
        }
        length = min(_fitting(specification, runner) for runner in runners.values())
        self.policies = PoliciesOfApplications(
            config, runners, threading.RLock(), self._published, length, specification.worker_index
        )
        self.update_weights()

    def _published(self) -> tuple[int, int]:
        return self._version, self._timestep

    def update_weights(self) -> None:
        """Fetch the newest weights, unless they are here."""
        began = time.monotonic()
        found = self.connection.get(f"weights?version={self._version}", PublishedWeights)
        if found.weights is not None:
            try:
                for policy_id, policy in self.policies.by_id.items():
                    policy.runner.policy.set_weights(safetensors.numpy.load(found.weights[policy_id]))
            except (SafetensorError, ConfigError, KeyError) as error:
                raise PolicyServerError(f"the weights of the policy server do not fit: {error}") from error
        self._version, self._timestep, self._newest = found.version, found.timestep, found.version
        self._updated_at = time.monotonic()
        self._took_s = self._updated_at - began

    def _update_if_due(self) -> None:
        """Fetch weights after the interval, and before where there are newer ones and little time goes there."""
        if self._update_interval is None:
            return
        waited = time.monotonic() - self._updated_at
        sooner = self._newest != self._version and waited >= FETCHES_APART * self._took_s
        if sooner or waited >= self._update_interval:
            self.update_weights()

    def start(self, episode_id: str, learns: bool) -> EpisodeStarted:
        """Begin an episode."""
        self._episodes[episode_id] = ExternalEpisode(episode_id, learns)
        return EpisodeStarted(episode_id=episode_id, has_agents=self.policies.has_agents)

    def act(self, steps: list[Step]) -> list[Any]:
        """The actions for observations of different episodes and agents."""
        self._update_if_due()
        episodes = [self._episodes[step.episode_id] for step in steps]
        asked = self.policies.read(steps, episodes)
        acted = self.policies.act(asked)
        played = [
            self._episodes[episode_id].record(*rows, self.policies.fragment_length)
            for episode_id, rows in rows_by_episode(steps, asked, acted).items()
        ]
        for each in played:
            self._send(each)
        return actions_of(steps, asked, acted)

    def end(self, message: EndEpisode) -> None:
        """End an episode, and send the rest of it."""
        episode = self._episodes[message.episode_id]
        last = self.policies.last(message.steps, episode)
        self.forget(message.episode_id)
        self._send(episode.end(last, truncated=message.truncated))

    def forget(self, episode_id: str) -> None:
        """Drop a lost episode."""
        self._episodes.pop(episode_id, None)

    def _send(self, played: Played | None) -> None:
        """Send steps, which are recorded no more; EpisodeLostError where the server refuses them."""
        if played is None:
            return
        try:
            for message in as_messages(played):
                self._newest = self.connection.post("fragments", message, PublishedWeights).version
        except (ConfigError, ExternalEpisodeError) as error:
            raise EpisodeLostError(f"steps of the episode were refused, and it is lost: {error}") from error


def _fitting(specification: Specification, runner: PolicyRunner) -> int:
    """The steps of a fragment, such that one fits into a request."""
    policy = runner.policy
    row = policy.observation_layout.size * policy.observation_layout.dtype.itemsize
    row += policy.action_layout.size * 8 + policy.dist_class.num_inputs * 4 + 64
    room = specification.max_request_bytes // 2 - sum(values.nbytes for values in policy.initial_state(1).values())
    return max(min(specification.fragment_length, room // row), 1)
