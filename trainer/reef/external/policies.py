"""The policies as applications use them, which may have several agents in an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import safetensors.numpy

from reef.config import AlgorithmConfig
from reef.config.applications import as_sent, has_agents
from reef.envs.agents.turns import EpisodeStart
from reef.errors import ConfigError, ExternalEpisodeError
from reef.external.acting import PolicyOfApplications
from reef.external.episodes.episode import AgentObservation, ExternalEpisode
from reef.external.episodes.steps import AgentSteps, ChosenAction, check_reward
from reef.external.listening.together import together_or_alone
from reef.external.wire import LastStep, Specification, Step
from reef.rollout.policy_runner import PolicyRunner
from reef.types import DEFAULT_POLICY, ONLY_AGENT, AgentId, PolicyId

MOST_AGENTS = 1000  # of an episode at the same time


class PoliciesOfApplications:
    """Acts with a `PolicyOfApplications` for each policy id."""

    def __init__(
        self,
        config: AlgorithmConfig,
        runners: Mapping[PolicyId, PolicyRunner],
        lock: AbstractContextManager[Any],
        published: Callable[[], tuple[int, int]],
        fragment_length: int,
        worker_index: int = 0,
    ) -> None:
        """`lock`: held while a runner is used. `published()`: version of the weights, environment steps so far.

        `fragment_length`: steps of an agent after which its episode is cut, or without a critic refused.
        """
        self.config, self.lock, self.published, self.fragment_length = config, lock, published, fragment_length
        self.has_agents = has_agents(config)
        self.by_id = {policy_id: PolicyOfApplications(runner, lock, published) for policy_id, runner in runners.items()}
        # What follows after a cut is estimated by a critic.
        self.may_cut = all(getattr(config.for_policy(policy_id), "use_critic", True) for policy_id in runners)
        # Whether an episode is learned from once it is over, if it is not too long.
        self.whole = config.batch_mode == "complete_episodes" or not self.may_cut
        self._worker_index = worker_index

    def check(self, episode: ExternalEpisode, agent_id: AgentId | None, reward: float, *, ends: bool = False) -> None:
        """Raise ConfigError for an agent where there is one alone, ExternalEpisodeError for what it cannot do."""
        if (agent_id is not None) != self.has_agents:
            raise ConfigError(
                "an episode has several agents here: give observations by agent."
                if self.has_agents
                else f"agent {agent_id!r}: an episode has one agent here. Give policies, or policy_mapping_fn."
            )
        where = f"episode {episode.episode_id!r}" + (f", agent {agent_id!r}" if self.has_agents else "")
        steps = episode.agents.get(ONLY_AGENT if agent_id is None else agent_id)
        # What an agent of several gets before it acts is the episode's alone.
        acted = self.has_agents or (steps is not None and steps.newest is not None)
        check_reward(where, reward, 0.0, has_acted=acted)
        if steps is not None and not ends and not self.may_cut and len(steps.rewards) >= self.fragment_length:
            raise ExternalEpisodeError(
                f"{where} has {self.fragment_length} steps, which is the most: use_critic=False "
                "learns from whole episodes. End it, raise max_request_bytes for a client with 'local', or use a "
                "critic."
            )

    def _agent(self, episode: ExternalEpisode, agent_id: AgentId | None) -> tuple[AgentId, AgentSteps]:
        """An agent of an episode and its steps, none yet if it is not there; ConfigError without a policy for it."""
        agent = ONLY_AGENT if agent_id is None else agent_id
        found = episode.agents.get(agent)
        return agent, found or AgentSteps(self._policy_of(agent, episode), episode.learns)

    def _policy_of(self, agent: AgentId, episode: ExternalEpisode) -> PolicyId:
        if not self.has_agents:
            return DEFAULT_POLICY
        start = EpisodeStart(episode.episode_id, 0, self._worker_index, tuple(self.by_id))
        return self.config.policy_of(agent, start)

    def read(self, steps: Sequence[Step], episodes: Sequence[ExternalEpisode]) -> list[AgentObservation]:
        """The steps of a request, each with its episode, as the policies take them.

        Raises ConfigError for a wrong value, ExternalEpisodeError for what an agent cannot do. Filters learn from the
        observations of a request where all of it is right, and of episodes that are learned from.
        """
        _check_number_of_agents(steps, episodes)
        for step, episode in zip(steps, episodes, strict=True):
            self.check(episode, step.agent_id, step.reward, ends=step.done)
        asked = [self._read(step, episode) for step, episode in zip(steps, episodes, strict=True)]
        for place, (step, episode) in enumerate(zip(steps, episodes, strict=True)):
            policy = self.by_id[asked[place].steps.policy_id]
            if policy.runner.filter is not None and episode.learns and not step.done:
                asked[place] = asked[place]._replace(obs=policy.observed(step.obs, update=True))
        return asked

    def _read(self, step: Step, episode: ExternalEpisode) -> AgentObservation:
        if step.done and not self.has_agents:
            raise ConfigError("done: an episode of one agent ends as a whole. Leave it out.")
        if step.done and step.agent_id not in episode.agents:
            raise ExternalEpisodeError(
                f"episode {episode.episode_id!r}: agent {step.agent_id!r} ends, but never acted."
            )
        agent, steps = self._agent(episode, step.agent_id)
        if step.done:
            return self._end(agent, steps, step.obs, step.reward)
        policy = self.by_id[steps.policy_id]
        own = None if step.action is None else policy.chosen(step.action)
        obs = policy.observed(step.obs)
        policy.check_mask(obs[None], None if own is None else own[None])
        return AgentObservation(agent, steps, step.reward, obs, policy.memory(steps, step.reward), own, ends=False)

    def last(self, sent: Sequence[LastStep], episode: ExternalEpisode) -> list[AgentObservation]:
        """The ends of agents; ConfigError for a wrong value."""
        if not self.has_agents and len(sent) != 1:
            raise ConfigError(f"an episode ends with {len(sent)} observations, expected the one of its agent.")
        if len({each.agent_id for each in sent}) < len(sent):
            raise ConfigError("an agent ends twice: give its last observation alone.")
        for each in sent:
            self.check(episode, each.agent_id, each.reward, ends=True)
        return [self._end(*self._agent(episode, each.agent_id), each.obs, each.reward) for each in sent]

    def _end(self, agent: AgentId, steps: AgentSteps, obs: Any, reward: float) -> AgentObservation:
        missing = obs is None and self.has_agents
        seen = None if missing else self.by_id[steps.policy_id].observed(obs)
        return AgentObservation(agent, steps, reward, seen, {}, None, ends=True)

    def act(self, asked: Sequence[AgentObservation]) -> list[tuple[Any, ChosenAction | None]]:
        """As `PolicyOfApplications.act`, in the order of `asked`; None for an agent that ends."""
        found: list[tuple[Any, ChosenAction | None]] = [(None, None)] * len(asked)
        places: dict[PolicyId, list[int]] = {}
        for place, each in enumerate(asked):
            if not each.ends:
                places.setdefault(each.steps.policy_id, []).append(place)
        for policy_id, own in places.items():
            for place, one in zip(own, self.by_id[policy_id].act([asked[place] for place in own]), strict=True):
                found[place] = one
        return found

    def answers(
        self, requests: Sequence[Sequence[AgentObservation]]
    ) -> list[list[tuple[Any, ChosenAction | None]] | Exception]:
        """`act` for each request, all in one forward pass; where that fails each is tried by itself."""
        return together_or_alone(self._acted, requests)

    def _acted(self, requests: Sequence[Sequence[AgentObservation]]) -> list[list[tuple[Any, ChosenAction | None]]]:
        acted = iter(self.act([each for asked in requests for each in asked]))
        return [[next(acted) for _ in asked] for asked in requests]

    def specification(self, max_request_bytes: int) -> Specification:
        """What a client needs to act by itself; ConfigError where it cannot."""
        filters = [policy.runner.filter for policy in self.by_id.values()]
        if any(each is not None for each in filters):
            raise ConfigError(
                f"observation_filter={self.config.observation_filter!r}: its statistics are in the server, so that a "
                "client cannot act by itself. Use inference_mode='remote', or set it to 'NoFilter'."
            )
        return Specification(
            algorithm=self.config.algorithm_class,
            settings=as_sent(self.config),
            fragment_length=self.fragment_length,
            max_request_bytes=max_request_bytes,
            worker_index=self._worker_index,
        )

    def weights(self) -> tuple[dict[PolicyId, bytes], int, int]:
        """The parameters of each policy as a safetensors file, their version, and environment steps so far."""
        with self.lock:
            policies = {policy_id: policy.runner.policy for policy_id, policy in self.by_id.items()}
            files = {policy_id: safetensors.numpy.save(own.get_weights()) for policy_id, own in policies.items()}
            return files, *self.published()


def _check_number_of_agents(steps: Sequence[Step], episodes: Sequence[ExternalEpisode]) -> None:
    """Raise ExternalEpisodeError where an episode would have more than MOST_AGENTS."""
    agents: dict[str, set[AgentId | None]] = {}
    for step, episode in zip(steps, episodes, strict=True):
        own = agents.setdefault(step.episode_id, set(episode.agents))
        own.add(ONLY_AGENT if step.agent_id is None else step.agent_id)
        if len(own) > MOST_AGENTS:
            raise ExternalEpisodeError(
                f"episode {step.episode_id!r}, agent {step.agent_id!r}: there are {MOST_AGENTS} agents, which is the "
                "most. End some."
            )


def rows_by_episode(
    steps: Sequence[Step], asked: Sequence[AgentObservation], acted: Sequence[tuple[Any, ChosenAction | None]]
) -> dict[str, tuple[list[AgentObservation], list[ChosenAction | None]]]:
    """By episode what belongs to it, as `ExternalEpisode.record` takes it."""
    rows: dict[str, tuple[list[AgentObservation], list[ChosenAction | None]]] = {}
    for step, each, (_, one) in zip(steps, asked, acted, strict=True):
        own, results = rows.setdefault(step.episode_id, ([], []))
        own.append(each)
        results.append(one)
    return rows


def actions_of(
    steps: Sequence[Step], asked: Sequence[AgentObservation], acted: Sequence[tuple[Any, ChosenAction | None]]
) -> list[Any]:
    """What the application is answered: its own actions too, and None for an agent that ends."""
    return [
        value if each.own is None else step.action for step, each, (value, _) in zip(steps, asked, acted, strict=True)
    ]
