"""Writes the episodes that a worker samples to the folder of the setting `output`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from reef.config import AlgorithmConfig
from reef.config.groups.operations import COLUMNS
from reef.envs.multi_agent import is_multi_agent
from reef.envs.vector import AgentsStep, EpisodeListener
from reef.nn.distributions import ActionDistribution
from reef.offline.episode_files import PlayedEpisode
from reef.offline.output_folder import OutputFolder
from reef.offline.steps import ACTION_LOGP, CHOSEN, STEP_KEYS
from reef.types import ONLY_AGENT, AgentId

if TYPE_CHECKING:
    from reef.rollout.worker import RolloutWorker

KEYS = STEP_KEYS[:-1]  # not the infos


class EpisodeRelay(EpisodeListener):
    """Passes on to `then` what it hears."""

    def __init__(self, then: EpisodeListener | None) -> None:
        self._then = then or EpisodeListener()

    def made(self, env: int, environment: Any, context: Any) -> None:
        """An environment was made."""
        self._then.made(env, environment, context)

    def begins(self, env: int) -> dict[str, Any]:
        """Leave the options of the reset to the next listener."""
        return self._then.begins(env)

    def began(self, env: int, obs: Mapping[AgentId, Any], infos: Mapping[AgentId, Any]) -> None:
        """The environment was reset."""
        self._then.began(env, obs, infos)

    def stepped(self, env: int, actions: Mapping[AgentId, Any], step: AgentsStep, *, ended: bool) -> None:
        """The environment was stepped."""
        self._then.stepped(env, actions, step, ended=ended)


class EpisodeRecorder(EpisodeRelay):
    """The listener that writes every episode that ends."""

    def __init__(self, folder: OutputFolder, worker: RolloutWorker, then: EpisodeListener | None) -> None:
        super().__init__(then)
        self._folder, self._worker = folder, worker
        self._several_agents = False
        self._episodes: dict[int, PlayedEpisode] = {}  # in progress, by environment
        self._obs: dict[int, Any] = {}  # the newest, by environment
        self._count = 0

    def made(self, env: int, environment: Any, context: Any) -> None:
        """Take in whether its values are those of several agents."""
        self._several_agents = is_multi_agent(environment)
        super().made(env, environment, context)

    def began(self, env: int, obs: Mapping[AgentId, Any], infos: Mapping[AgentId, Any]) -> None:
        """Record another episode; one that broke is forgotten."""
        self._count += 1
        self._episodes[env], self._obs[env] = PlayedEpisode(self._count), deepcopy(self._plain(obs))
        super().began(env, obs, infos)

    def stepped(self, env: int, actions: Mapping[AgentId, Any], step: AgentsStep, *, ended: bool) -> None:
        """Record a step, and write the episode after its last one."""
        episode = self._episodes[env]
        episode.length += 1
        episode.reward += sum(map(float, step.rewards.values()))
        self._obs[env] = episode.keep(KEYS, self._obs[env], *map(self._plain, (actions, *step)))
        if not self._several_agents:
            keep_likelihood(episode, self._worker, env)
        super().stepped(env, actions, step, ended=ended)
        if ended:
            episode.complete = True
            self._folder.add(episode)

    def _plain(self, values: Mapping[AgentId, Any]) -> Any:
        """What an environment of one agent gave, or of each of several."""
        return values if self._several_agents else values[ONLY_AGENT]

    def close(self) -> None:
        """Complete the file that is written."""
        self._folder.close()


def keep_likelihood(episode: PlayedEpisode, worker: RolloutWorker, env: int) -> None:
    """Add to the newest step of an episode of one agent how likely its action was, if the worker knows it."""
    runner, *others = worker.runners.values()
    if others or not runner.explores or runner.to_env is not None or not runner.exploration.has_logp:
        return
    actions = runner.newest_actions[env : env + 1]
    distribution = ActionDistribution(runner.policy.dist_class, runner.acted_by[env : env + 1])
    episode.steps[-1][ACTION_LOGP] = float(runner.exploration.logp(distribution, actions, worker.timestep)[0])
    if not runner.columns.action_transform.identity:
        episode.steps[-1][CHOSEN] = actions[0].copy()


def episode_recorder(
    config: AlgorithmConfig, worker: RolloutWorker, then: EpisodeListener | None
) -> EpisodeRecorder | None:
    """What records the episodes of a worker, or None where none are written; StorageError as of `OutputFolder`.

    With `output="logdir"` a worker that tries the settings before the run writes none.
    """
    if config.output in (None, "logdir"):
        return None
    is_parquet = config.output_config["format"] == "parquet"
    compressed = [COLUMNS[name] for name in config.output_compress_columns] if is_parquet else None
    folder = OutputFolder(config.output, worker.worker_index, config.output_max_file_size, compressed)
    return EpisodeRecorder(folder, worker, then)
