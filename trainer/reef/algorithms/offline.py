"""Common parts of algorithms that learn from recorded episodes alone: settings and loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from reef.config import AlgorithmConfig, default, setting
from reef.config.ignored import Network, ignored
from reef.offline.episodes import EpisodeReader, files_of
from reef.offline.recorded import RecordedSteps, Source
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows.offline import offline
from reef.types import PolicyId, State, Stats


class OfflineConfig(AlgorithmConfig):
    """Settings of what is read. The environment gives the spaces, and evaluation plays in it; training does not."""

    policies_may_change: ClassVar[bool] = False
    reads_records: ClassVar[bool] = True

    # no server of actions, but places to read
    input_: str | list[str] | dict[str, float] = setting(  # type: ignore[assignment]
        "",
        "Recorded episodes: a file, a folder, a pattern such as data/*.json, or a list of these. A mapping of these to "
        "weights says how often steps of each are drawn.",
        group="offline_data",
    )
    actions_in_input_normalized: bool = setting(
        False,
        "The recorded actions are as the policy chose them; false: as the environment got them",
        group="offline_data",
    )
    min_train_timesteps_per_iteration: int | None = default(50_000)

    @property
    def summed_rewards(self) -> int | None:
        """How many rewards of a step and its next ones are summed; None: all up to the episode's end."""
        return 1

    def problems(self) -> Iterator[str]:
        """Yield what does not go together with recorded episodes."""
        yield from super().problems()
        yield from self._input_problems()
        yield from self._sampling_problems()
        if self.observation_filter != "NoFilter":
            yield (
                f"observation_filter={self.observation_filter!r}: {self.label} reads observations as they were "
                "recorded. Leave it at 'NoFilter'."
            )
        for key in ("env_to_module_connector", "module_to_env_connector"):
            if (function := getattr(self, key)) is not None:
                yield (
                    f"{key}={function!r}: {self.label} learns from observations and actions as they were recorded. "
                    "Leave it out, and wrap the environment before its episodes are recorded."
                )
        if len(self.policies) > 1 or any(map(self.own_settings, self.policies)):
            yield (
                f"policies={list(self.policies)}: {self.label} learns a single policy without settings of its own. "
                "Leave it out."
            )

    def _input_problems(self) -> Iterator[str]:
        if not self.input_:
            yield (
                f"input_={self.input_!r}: {self.label} learns from recorded episodes. Set it to a file that "
                "`reef evaluate CHECKPOINT --out FILE` wrote, or a folder of such files."
            )
        weights = self.input_ if isinstance(self.input_, dict) else {}
        if "sampler" in weights:
            yield f"input_: 'sampler': {self.label} samples nothing. Leave it out."
        if wrong := {place: weight for place, weight in weights.items() if not 0 < weight < math.inf}:
            yield f"input_={wrong}: expected weights above 0, such as 0.3. Leave out what is not to be read."
        if self.input_config:
            yield f"input_config={self.input_config!r}: has no effect with recorded episodes. Leave it out."

    def _sampling_problems(self) -> Iterator[str]:
        if self.num_rollout_workers:
            yield (
                f"num_rollout_workers={self.num_rollout_workers}: {self.label} samples nothing. Leave it at 0; "
                "evaluation_num_workers is for evaluation."
            )
        if self.output:
            yield f"output={self.output!r}: {self.label} samples no episodes to write. Leave it out."
        for key in ("record_env", "render_env"):
            if asked := getattr(self, key):
                fix = f"evaluation_config={{{key!r}: {asked!r}}} draws its evaluations."
                yield f"{key}={asked!r}: {self.label} samples no episodes to draw. Leave it out; {fix}"

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for fragments, which evaluation alone samples, by steps or by a function of its own."""
        yield from super().ignored_settings(network)
        if self.evaluation_duration_unit == "episodes" and self.custom_evaluation_function is None:
            reason = f"with {self.label}, which learns from recorded steps and is evaluated on whole episodes"
            yield from ignored(self, reason, "batch_mode", "rollout_fragment_length")


class OfflineAlgorithm(Algorithm):
    """Draw recorded steps, learn from them, publish the weights."""

    config: OfflineConfig

    def setup(self) -> None:
        """Read the episodes."""
        config = self.config
        ((self.policy_id, runner),) = self.workers.local_worker().runners.items()
        policy, columns = runner.policy, runner.columns
        action_transform = None if config.actions_in_input_normalized else columns.action_transform
        excludes = None if policy.action_mask is None else policy.action_mask.excludes
        layouts = policy.observation_layout, policy.action_layout
        reader = EpisodeReader(*layouts, action_transform, columns.reward_transform, excludes)
        weights = config.input_.items() if isinstance(config.input_, dict) else [(config.input_, 1.0)]
        sources = [Source(reader.read(files_of(places)), weight) for places, weight in weights]
        self.recorded = RecordedSteps(sources, gamma=config.gamma, n_step=config.summed_rewards, seed=config.seed)

    def training_step(self) -> dict[PolicyId, Stats]:
        """One iteration of the offline flow."""
        return offline(self, self.recorded, self.policy_id)

    def state(self) -> State:
        """The algorithm's state with that of the draws."""
        return super().state() | {"recorded": self.recorded.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        with restoring("its draws of recorded steps"):
            self.recorded.set_state(state["recorded"])
