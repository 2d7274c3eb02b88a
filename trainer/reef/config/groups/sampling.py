"""What experience is collected, and how: environments, workers, exploration, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

from reef.config.declaration import setting
from reef.config.groups.evaluated import as_changes, evaluation_problems
from reef.config.groups.group import GroupSetter
from reef.config.ignored import drawing_problems
from reef.config.settings import Settings
from reef.config.spaces import as_space, space_problems


class EnvironmentSettings(Settings):
    """The environment, and what happens between it and the policy."""

    environment = GroupSetter("env")

    env: str | type | Callable[..., Any] | None = setting(
        None,
        "A Gymnasium id, 'package.module:Class', a class, or a function of env_config that returns an environment.",
    )
    env_config: dict[str, Any] = setting(
        {},
        "What the environment is made with. A class or function gets it as one argument, together with worker_index, "
        "vector_index, num_workers, recreated_worker and render_mode; a Gymnasium id gets it as keyword arguments.",
    )
    observation_space: Any = setting(
        None,
        "The observation space, where the environment's own is not to be used.",
        convert=as_space("observation_space"),
    )
    action_space: Any = setting(
        None, "The action space, where the environment's own is not to be used.", convert=as_space("action_space")
    )
    env_task_fn: str | Callable[..., Any] | None = setting(
        None,
        "A curriculum: a function, or its path 'package.module:function', that returns the next task of an environment "
        "after each iteration, from its result, the environment, which has get_task and set_task, and its env_config.",
        called_with=("train_results", "task_settable_env", "env_ctx"),
    )
    clip_rewards: bool | float | list[float] | None = setting(
        None,
        "Rewards seen by the learner: true keeps the sign only, a number v clips to -v..v, two numbers clip to these "
        "bounds. null clips Atari games by sign and nothing else. Reported rewards are never clipped.",
    )
    normalize_actions: bool = setting(
        True, "The policy acts in -1..1, which is stretched to the bounds of a Box action space."
    )
    clip_actions: bool = setting(
        False, "Clip actions to the bounds of the action space before they reach the environment."
    )
    record_env: bool | str = setting(
        False,
        "Write videos of the first environment of the first worker: of its episodes 1, 8, 27, ... 1000, then of each "
        "1000th. true writes to videos/ in the result folder, a path to that folder. See docs/debugging.md.",
    )
    render_env: bool = setting(
        False, "Show the first environment of the first worker in a window while it trains. Needs a display."
    )
    disable_env_checking: bool = setting(False, "Skip the check of spaces, reset and step before training starts.")
    is_atari: bool | None = setting(
        None, "Whether this is an Atari game; null finds out. false neither clips its rewards nor prepares its frames."
    )
    auto_wrap_old_gym_envs: bool = setting(
        True,
        "Wrap environments of the old Gym API (reset gives obs, step gives 4); false refuses them and says what to do.",
    )
    action_mask_key: str | None = setting(
        "action_mask", "Key of a Dict observation that holds a number for each action, 0 excludes it; null: no mask."
    )
    horizon: int | None = setting(None, "Cut episodes off after this many steps.", minimum=1, unit="steps")
    soft_horizon: bool = setting(False, "At the horizon, go on in the environment without a reset.")
    no_done_at_end: bool = setting(False, "Do not mark the end of an episode as terminal.")

    def problems(self) -> Iterator[str]:
        """A soft horizon needs a horizon; rewards have bounds apart; an environment draws in one way."""
        yield from super().problems()
        for key in ("observation_space", "action_space"):
            yield from space_problems(key, getattr(self, key))
        yield from drawing_problems(self)
        if self.record_env == "":
            yield "record_env='': expected the path of a folder, or true for videos/ in the result folder."
        if self.soft_horizon and self.horizon is None:
            yield "soft_horizon=True: needs horizon, the number of steps after which an episode is cut."
        clip = self.clip_rewards
        if isinstance(clip, list) and (len(clip) != 2 or clip[0] >= clip[1]):
            yield f"clip_rewards={clip!r}: expected two bounds, the lower one first, such as [-1.0, 1.0]."
        if isinstance(clip, float) and clip <= 0:
            yield f"clip_rewards={clip!r}: must be larger than 0, or false to clip nothing."


class RolloutSettings(Settings):
    """Workers, their environments, and what one sample is."""

    rollouts = GroupSetter()
    # whether workers never wait for the learner, and take the newest weights with each fragment
    asynchronous: ClassVar[bool] = False
    # whether rollout workers are also the learners, and make each update together
    decentralized: ClassVar[bool] = False
    # "package.module:Class" of the rollout workers where they do more than sample, a subclass of `RolloutWorker`
    worker_class: ClassVar[str] = ""

    num_rollout_workers: int = setting(
        0, "Rollout workers in processes of their own; 0 samples inside the algorithm's process.", minimum=0
    )
    num_envs_per_worker: int = setting(
        1,
        "Environments of one worker, stepped together; the policy acts for all of them in one forward pass.",
        minimum=1,
    )
    remote_worker_envs: bool = setting(
        False, "Run each environment in a process of its own, on the machine of its worker: for slow environments."
    )
    remote_env_batch_wait_ms: float = setting(
        0.0,
        "How long the policy waits for further environments once one has answered; it acts for those that have. 0 "
        "waits for none, a large value for all. Needs remote_worker_envs and environments of one agent.",
        minimum=0.0,
        unit="milliseconds",
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
    preprocessor_pref: str | None = setting(
        "deepmind",
        "How the frames of Atari games are prepared. 'deepmind': up to 30 frames without an action at first, actions "
        "repeated for 4 frames, gray frames, 4 of them in an observation, FIRE pressed where a life begins, a lost "
        "life as an end for the learner. 'rllib': each frame is made smaller. null: not at all.",
        choices=(None, "deepmind", "rllib"),
    )
    synchronize_filters: bool = setting(True, "Have all workers filter by what all of them have seen.")
    use_worker_filter_stats: bool = setting(True, "Merge what the workers saw into the central filter.")
    update_worker_filter_stats: bool = setting(True, "Send the central filter back to the workers.")
    sample_async: bool = setting(
        False,
        "Rollout workers sample the next fragments while the learner works on these, with weights that are up to "
        "max_requests_in_flight_per_sampler_worker versions older; needs num_rollout_workers above 0. Fragments under "
        "way are no part of a checkpoint.",
    )
    env_to_module_connector: str | Callable[..., Any] | None = setting(
        None,
        "A function, or its path 'package.module:function', from observations, one row for each environment, to those "
        "that the policy gets, before the filter. See docs/environments.md.",
        called_with=("observations",),
    )
    module_to_env_connector: str | Callable[..., Any] | None = setting(
        None,
        "A function, or its path, from actions as the policy chose them, one row for each environment, to such "
        "actions; then they are stretched and clipped as normalize_actions and clip_actions say.",
        called_with=("actions",),
    )
    sampler_perf_stats_ema_coef: float | None = setting(
        None, "Weight of the newest value in timings; null averages all.", minimum=0.0, maximum=1.0
    )

    def problems(self) -> Iterator[str]:
        """Sampling ahead needs processes to do it."""
        yield from super().problems()
        if self.sample_async and self.asynchronous:
            yield "sample_async=True has no effect: workers always sample ahead of the learner here. Leave it at False."
        elif self.sample_async and self.num_rollout_workers == 0:
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


class EvaluationSettings(Settings):
    """When, how long and with which changed settings the policy is evaluated."""

    evaluation = GroupSetter()
    of_the_network: ClassVar[tuple[str, ...]] = ()

    evaluation_interval: int | None = setting(
        None, "Iterations between two evaluations; null or 0 never evaluates.", minimum=0, unit="iterations"
    )
    evaluation_duration: int | Literal["auto"] = setting(
        10,
        "Length of one evaluation, in evaluation_duration_unit; 'auto' lasts as long as the training beside it, with "
        "evaluation_parallel_to_training.",
        minimum=1,
    )
    evaluation_duration_unit: str = setting(
        "episodes",
        "'episodes' runs exactly evaluation_duration episodes, 'timesteps' about as many steps.",
        choices=("episodes", "timesteps"),
    )
    evaluation_parallel_to_training: bool = setting(
        False,
        "Evaluate beside the training of an iteration, with the weights from before it: results are one iteration "
        "behind. Needs evaluation_num_workers above 0.",
    )
    enable_async_evaluation: bool = setting(
        False,
        "Evaluate beside training, which never waits for it: results are in the first iteration after its end, and "
        "none begins meanwhile. Needs evaluation_num_workers above 0.",
    )
    evaluation_sample_timeout_s: float = setting(
        180.0, "How long an evaluation may wait for samples before it ends with a warning.", above=0.0, unit="seconds"
    )
    evaluation_config: dict[str, Any] = setting(
        {},
        "Settings that differ in evaluation; explore is false there unless this says otherwise. env_config is merged. "
        "In Python also a configuration: what differs from its defaults.",
        convert=as_changes,
    )
    evaluation_num_workers: int = setting(
        0, "Workers for evaluation only; 0 evaluates in the algorithm's process.", minimum=0
    )
    custom_evaluation_function: str | Callable[..., Any] | None = setting(
        None,
        "A function, or its path 'package.module:function', that evaluates in place of Reef: it gets the algorithm and "
        "its evaluation workers, which have the newest weights, and returns a dict of metrics.",
        called_with=("algorithm", "evaluation_workers"),
    )
    off_policy_estimation_methods: dict[str, dict[str, Any]] = setting(
        {},
        "Estimates of the policy's value from the recorded episodes of evaluation_config.input_, by name: 'type' (is, "
        "wis, dm, dr or a class of your own) and its arguments. See docs/off-policy-estimation.md.",
    )
    ope_split_batch_by_episode: bool = setting(
        True, "Estimate from whole episodes; false takes each step as an episode, as for contextual bandits."
    )
    always_attach_evaluation_results: bool = setting(False, "Repeat the newest evaluation in every result.")
    in_evaluation: bool = setting(False, "True in the settings of evaluation workers.")

    def problems(self) -> Iterator[str]:
        """Evaluation beside training needs workers, and every changed setting must itself be fine."""
        yield from super().problems()
        yield from evaluation_problems(self)
