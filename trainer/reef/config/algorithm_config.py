"""`AlgorithmConfig`: all settings of a training run, read flat and written in sentences."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from reef.config.aliases import GROUPS, translate
from reef.config.groups.evaluated import read_by_evaluation
from reef.config.groups.inputs import FOR_INPUT, SAMPLER
from reef.config.groups.multi_agent import MultiAgentSettings
from reef.config.groups.operations import (
    CallbackSettings,
    CheckpointingSettings,
    DebuggingSettings,
    ExperimentalSettings,
    FaultToleranceSettings,
    FrameworkSettings,
    OfflineDataSettings,
    PythonEnvironmentSettings,
    ReportingSettings,
    ResourceSettings,
)
from reef.config.groups.sampling import (
    EnvironmentSettings,
    EvaluationSettings,
    ExplorationSettings,
    RolloutSettings,
)
from reef.config.groups.training import TrainingSettings
from reef.config.ignored import FOR_VECTORS, Network, ignored_beside_custom_model, ignored_of_memory, ignored_with
from reef.config.loading import load, settings_class
from reef.config.refusals import refusals_in
from reef.errors import ConfigError
from reef.types import DEFAULT_POLICY, PolicyId

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


class AlgorithmConfig(
    EnvironmentSettings,
    FrameworkSettings,
    RolloutSettings,
    ExplorationSettings,
    TrainingSettings,
    EvaluationSettings,
    FaultToleranceSettings,
    ResourceSettings,
    PythonEnvironmentSettings,
    ReportingSettings,
    CheckpointingSettings,
    DebuggingSettings,
    CallbackSettings,
    MultiAgentSettings,
    OfflineDataSettings,
    ExperimentalSettings,
):
    """The settings that all algorithms share. An algorithm subclasses it and adds its own."""

    _checked = False  # whether these are frozen since they were found to fit together
    group: ClassVar[str] = "training"  # the group of the settings that a subclass adds
    label: ClassVar[str] = "AlgorithmConfig"
    refusals = refusals_in()
    algorithm: ClassVar[str] = ""  # its name, for example "PPO"; by default algorithm_class
    algorithm_class: ClassVar[str] = ""  # "package.module:Class"
    # "package.module:Name" of the class or function that makes its policy of (config, observation_space, action_space)
    policy_class: ClassVar[str] = ""
    policies_may_change: ClassVar[bool] = True  # whether policies can be added and removed while it trains
    agents_share_a_policy: ClassVar[bool] = True  # whether several agents of one environment may act with one policy

    def __new__(cls, *, algo_class: type[Algorithm] | None = None, **settings: Any) -> Self:
        """The settings of `algo_class`, if it is given."""
        return super().__new__(cls if algo_class is None else settings_class(algo_class, cls))

    def __init__(self, *, algo_class: type[Algorithm] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        if algo_class is not None:
            settings_class(algo_class, type(self), exactly=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "algorithm_class" in vars(cls) and "algorithm" not in vars(cls):  # the name it inherits is another's
            cls.algorithm = cls.algorithm_class
        cls.label = cls.algorithm or cls.__name__

    if not TYPE_CHECKING:  # mypy would take every name as known

        def __getattr__(self, name: str) -> Any:
            if name not in GROUPS:
                return super().__getattr__(name)
            raise AttributeError(f"{type(self).__name__} has no {name!r}: write config.{GROUPS[name]}")

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Make a configuration with these settings over the defaults; older spellings are translated.

        Raises:
            ConfigError: a key is unknown.
        """
        return cls().update_from_dict(settings)

    def update_from_dict(self, settings: Mapping[str, Any]) -> Self:
        """Set many settings at once, by key; older spellings are translated."""
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{settings!r}: expected a mapping of settings, such as {{'lr': 0.001}}.")
        translated = translate(settings)
        if isinstance(translated.get("evaluation_config"), Mapping):
            translated["evaluation_config"] = translate(translated["evaluation_config"])
        return self.assign(translated)

    @classmethod
    def overrides(cls, **settings: Any) -> dict[str, Any]:
        """Check the keys and return the settings as a mapping, for `evaluation_config`."""
        cls.check_keys(settings)
        return settings

    def set_path(self, path: str, value: Any) -> Self:
        """Set one setting by its dotted path, such as "lr", "model.fcnet_hiddens" or "env_config.length"."""
        return super().set_path(path, value) if "." in path else self.update_from_dict({path: value})

    @property
    def total_train_batch_size(self) -> int:
        """Environment steps in one train batch of all learners together."""
        if self.train_batch_size_per_learner is None:
            return self.train_batch_size
        return self.train_batch_size_per_learner * max(self.num_learner_workers, 1)

    def fragment_length(self, worker_index: int = 0, workers: int | None = None) -> int:
        """Steps of each environment in one sample of this worker; what "auto" leaves over goes to the first workers.

        `workers`: how many share the batch, where that are not all that were asked for.
        """
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        columns = self.num_envs_per_worker * max(workers or self.num_rollout_workers, 1)
        length, left_over = divmod(self.total_train_batch_size, columns)
        takes_one_more = left_over > 0 and worker_index * self.num_envs_per_worker <= left_over
        return max(length + takes_one_more, 1)

    @property
    def enough_steps(self) -> int:
        """Environment steps with which a train batch is full: "auto" may leave out a step of some environments."""
        spare = self.num_envs_per_worker - 1 if self.rollout_fragment_length == "auto" else 0
        return max(self.total_train_batch_size - spare, 1)

    @property
    def columns_in_a_round(self) -> int:
        """Environments whose fragments come into a train batch together: of all workers, unless none waits for them."""
        return self.num_envs_per_worker * (1 if self.asynchronous else max(self.num_rollout_workers, 1))

    @property
    def workers_estimate_values(self) -> bool:
        """Whether workers add to each step what its TD error is computed from, see `reef.replay.n_step.STEP_VALUES`."""
        return False

    @property
    def samples_while_learning(self) -> bool:
        """Whether rollout workers keep their CPUs busy during an update."""
        return self.sample_async or self.asynchronous

    @property
    def evaluates_beside_training(self) -> bool:
        """Whether training goes on during an evaluation."""
        return self.evaluation_parallel_to_training or self.enable_async_evaluation

    def for_policy(self, policy_id: PolicyId | None) -> Self:
        """The settings of one policy: with its own, and other random numbers; None: of one without any of its own."""
        own = {} if policy_id is None else self.own_settings(policy_id)
        policy_class = None if policy_id is None else self.spec(policy_id).policy_class
        if policy_id != DEFAULT_POLICY and policy_id is not None and self.seed is not None:
            own["seed"] = (self.seed + zlib.crc32(policy_id.encode())) % 2**31
        if not own and policy_class is None and policy_id is not None:
            return self
        alike = {"policies": list(self.policies), "algorithm_config_overrides_per_module": {}}
        changed = self.copy().assign(alike | own)
        if policy_class is not None:
            vars(changed)["policy_class"] = policy_class
        return changed.freeze()

    def batch_size_problems(self) -> Iterator[str]:
        """Say where whole fragments miss the train batch by over 10 %; for algorithms that train on all they sample."""
        length, total = self.rollout_fragment_length, self.total_train_batch_size
        if length == "auto" or self.count_steps_by == "agent_steps":
            return
        columns = self.columns_in_a_round
        reached = math.ceil(total / (length * columns)) * length * columns
        if reached - total > 0.1 * total:
            suggested = math.ceil(total / columns)
            yield (
                f"rollout_fragment_length={length}: with num_rollout_workers={self.num_rollout_workers} and "
                f"num_envs_per_worker={self.num_envs_per_worker} a batch becomes {reached} steps, more than 10 % off "
                f"train_batch_size={total}. Set rollout_fragment_length to {suggested} or 'auto'."
            )

    def problems(self) -> Iterator[str]:
        """Arguments of a custom model need something that takes them."""
        yield from super().problems()
        given = self.model.custom_model_config
        if given and not (self._has_own_network or any(self.has_own_network(policy) for policy in self.policies)):
            yield (
                f"model.custom_model_config={given!r}: there is no model.custom_model that takes it. Set it too, or "
                "leave this out."
            )

    @property
    def _has_own_network(self) -> bool:
        """Whether a person's class makes the network of these settings."""
        is_reefs = isinstance(self.policy_class, str) and self.policy_class.startswith("reef.")
        return bool(self.model.custom_model) or not is_reefs

    def evaluation_settings(self) -> Self:
        """The settings of evaluation workers: `evaluation_config` on top, no exploration unless that asks for it."""
        changed: dict[str, Any] = {
            "explore": False,
            "env_task_fn": None,
            "num_rollout_workers": self.evaluation_num_workers,
            "sample_timeout_s": self.evaluation_sample_timeout_s,
            "evaluation_config": {},
            "in_evaluation": True,
            "sample_async": False,
            "input_": SAMPLER,
            **FOR_INPUT,
            "output": None,
            "render_env": False,
            **self.evaluation_config,
        }
        if "env_config" in changed:
            changed["env_config"] = {**self.env_config, **changed["env_config"]}
        return self.copy().assign(changed)

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Settings that were given and that `network`, which was made by them, does not read: a text for each.

        Overrides say this of another network than an actor and a critic.
        """
        yield from ignored_of_memory(self)
        if self.model.custom_model:
            yield from ignored_beside_custom_model(self)
        elif network.has_image is not None:
            yield from ignored_with(self, network.has_image, *FOR_VECTORS)

    def validate(self) -> Self:
        """Check everything.

        Raises:
            ConfigError: with every problem: key, value and fix.
        """
        problems = list(self.wrong_values()) or list(self.problems())
        if problems:
            lines = "\n".join(f"- {problem}" for problem in problems)
            count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
            raise ConfigError(f"{count} in the settings of {self.label}:\n{lines}")
        return self

    def checked(self) -> Self:
        """A frozen copy of these settings, which fit together; themselves where they are one already.

        Raises:
            ConfigError: as `validate`.
        """
        if self._checked:
            return self
        config = self.copy().validate()
        config.evaluation_config = read_by_evaluation(config)
        config.freeze()
        vars(config)["_checked"] = True
        return config

    def _freeze(self, frozen: bool) -> None:
        super()._freeze(frozen)
        vars(self)["_checked"] = False

    def build(self, env: Any = None) -> Algorithm:
        """Check a copy of these settings, freeze it and make the algorithm with it."""
        config = self if env is None else self.copy().environment(env)
        algorithm: Algorithm = load("reef.run.build:build_alone")(config.checked())
        return algorithm
