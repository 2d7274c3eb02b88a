"""How experience is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.settings import Settings


class RolloutSettings(Settings):
    """Workers, their environments, and what one sample is."""

    rollouts = GroupSetter()

    num_rollout_workers: int = setting(
        0, "Rollout workers in processes of their own; 0 samples inside the algorithm's process.", minimum=0
    )
    num_envs_per_worker: int = setting(
        1,
        "Environments of one worker, stepped together; the policy acts for all of them in one forward pass.",
        minimum=1,
    )
    create_env_on_local_worker: bool = setting(
        False, "Also make the environment in the algorithm's own process when there are rollout workers."
    )
    rollout_fragment_length: int | Literal["auto"] = setting(
        200,
        "Steps of each environment in one sample of a worker; 'auto' divides the train batch among all environments.",
        minimum=1,
        unit="steps",
    )
    batch_mode: str = setting(
        "truncate_episodes",
        "'truncate_episodes' samples exactly the fragment, 'complete_episodes' at least that and only whole episodes.",
        choices=("truncate_episodes", "complete_episodes"),
    )
    validate_workers_after_construction: bool = setting(True, "Check that every worker answers before training starts.")
    observation_filter: str = setting(
        "NoFilter",
        "'MeanStdFilter' scales every element of an observation by its running mean and standard deviation.",
        choices=("NoFilter", "MeanStdFilter"),
    )
    synchronize_filters: bool = setting(True, "Merge the filter statistics of all workers after each iteration.")
    use_worker_filter_stats: bool = setting(True, "Merge what the workers saw into the central filter.")
    update_worker_filter_stats: bool = setting(True, "Send the central filter back to the workers.")
    sample_async: bool = setting(
        False,
        "Rollout workers sample the next fragments while the learner works on these, with weights that are up to "
        "max_requests_in_flight_per_sampler_worker versions older; needs num_rollout_workers above 0. Fragments under "
        "way are no part of a checkpoint.",
    )
    sampler_perf_stats_ema_coef: float | None = setting(
        None, "Weight of the newest value in timings; null averages all.", minimum=0.0, maximum=1.0
    )

    def problems(self) -> Iterator[str]:
        """Sampling ahead needs processes to do it."""
        yield from super().problems()
        if self.sample_async and self.num_rollout_workers == 0:
            yield (
                "sample_async=True needs rollout workers in processes of their own, but num_rollout_workers=0: set "
                "num_rollout_workers to 1 or more, or sample_async=False"
            )


class ExplorationSettings(Settings):
    """How actions are chosen while collecting."""

    exploration = GroupSetter()

    explore: bool = setting(True, "Explore while collecting experience; false always takes the policy's best action.")
    exploration_config: dict[str, Any] = setting(
        {"type": "StochasticSampling"},
        "'type' is the name of an exploration, 'package.module:Class' or a class; the other keys are its arguments. "
        "What is not given stays as in the algorithm's default, unless the type is another one.",
    )
