"""What a person asks of a policy: actions for given observations, its model, its weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.models.preprocessors import Preprocessor
from reef.nn.distributions import ActionDistribution
from reef.nn.layers.action_mask import ActionMask
from reef.nn.queries.model import PolicyModel
from reef.nn.weight_files import translated, weight_problems
from reef.spaces import Layout
from reef.types import Array, RecurrentState

# Names in a recurrent state: [N, n, *action] and [N, n], the newest first.
PREV_ACTIONS, PREV_REWARDS = "prev_actions", "prev_rewards"


class Transform(Protocol):
    """From actions as the policy chooses them to those that an environment takes."""

    def __call__(self, actions: Array) -> Array:
        """[N, *action] -> [N, *action]."""

    def inverse(self, actions: Array) -> Array:
        """[*action] -> [*action]."""


class Chooser(Protocol):
    """How the worker of a policy acts."""

    def observed(self, observation: Any) -> Array:
        """A value of the environment's observation space -> [*obs], by connector and filter."""

    def choose(
        self, obs: Array, state: RecurrentState, explore: bool | None, timestep: int | None
    ) -> tuple[Array, ActionDistribution, RecurrentState]:
        """[N, *obs] and the state -> actions [N, *action], what they were chosen by, and the state after that.

        `timestep`: of schedules of the exploration, in environment steps; None: the present one.
        """

    def transform(self, *, unsquash: bool | None, clip: bool | None) -> Transform:
        """Bring actions into the bounds of a Box; None: as the settings say."""

    def reward(self, reward: float) -> float:
        """A reward as the policy is trained on it."""


class QueriedPolicy(nn.Module):
    """A policy, as a person uses it."""

    model_class: ClassVar[type[PolicyModel]] = PolicyModel
    config: AlgorithmConfig
    observation_layout: Layout
    action_layout: Layout
    action_mask: ActionMask | None
    # of the worker that the policy belongs to
    chooser: Chooser | None = None
    # of the algorithm that the policy belongs to: improves it on what workers sampled
    learn: Callable[[Any], dict[str, Any]] | None = None
    # reads its weights back where a worker keeps them in a file meanwhile
    recall: Callable[[], None] | None = None
    # whether its weights were set by a user since the learners last read them
    set_by_hand = False

    @abstractmethod
    def initial_state(self, columns: int) -> RecurrentState:
        """The recurrent state before the first step of an episode."""

    @abstractmethod
    def after_step(self, state: RecurrentState, actions: Array, rewards: Array, done: Array) -> RecurrentState:
        """Update the recurrent state after the environments have executed the actions."""

    @cached_property
    def preprocessor(self) -> Preprocessor:
        """Turns observations into arrays."""
        return Preprocessor(self.observation_layout.space)

    @cached_property
    def model(self) -> PolicyModel:
        """The network: call it with {"obs": observations}, or print it."""
        return self.model_class(self)  # type: ignore[arg-type]

    def observed(self, observation: Any) -> Array:
        """An observation of the environment as the network reads it, [*obs]; ConfigError where it is none."""
        return self._asked().observed(observation)

    def compute_actions(
        self,
        obs_batch: Any,  # N observations, filtered: values of the space, or preprocessed
        state_batches: Sequence[Array] | None = None,  # [N, ...] each, as the call before returned them
        prev_action_batch: Any = None,  # N actions as this returns them
        prev_reward_batch: Sequence[float] | None = None,  # [N]
        info_batch: Any = None,  # empty
        *,
        explore: bool | None = None,
        timestep: int | None = None,
        unsquash_actions: bool | None = None,
        clip_actions: bool | None = None,
    ) -> tuple[Any, list[Array], dict[str, Array]]:
        """Return N actions, the recurrent state after them, and `action_dist_inputs` [N, D].

        `explore`: None means the setting of that name, True by the policy's exploration, whose schedules are then at
        `timestep` environment steps; None means the steps sampled so far. `unsquash_actions` stretches
        actions to the bounds of a Box, `clip_actions` clips them; None means the settings `normalize_actions` and
        `clip_actions`. Actions are an array [N, *action], or a list of values of a Dict or Tuple space.
        Raises ConfigError for what does not fit.
        """
        _refuse_infos(info_batch or ())
        _check_timestep(timestep)
        if explore not in (None, True, False):
            raise ConfigError(f"explore={explore!r}: expected true, false or None, which means the setting.")
        obs, chooser = self.preprocessor.observations(obs_batch), self._asked()
        transform = chooser.transform(unsquash=unsquash_actions, clip=clip_actions)
        state = self.given_state(len(obs), state_batches)
        _write_previous(state, PREV_ACTIONS, prev_action_batch, lambda each: transform.inverse(self._flat_action(each)))
        _write_previous(state, PREV_REWARDS, prev_reward_batch, chooser.reward)
        self.require_choices(obs)
        actions, distribution, after = chooser.choose(obs, state, explore, timestep)
        after = self.after_step(after, actions, np.zeros(len(obs), np.float32), np.zeros(len(obs), np.bool_))
        bounded, layout = transform(actions), self.action_layout
        values = [layout.unflatten(row) for row in bounded] if layout.composite else layout.unflatten(bounded)
        return values, [after[name] for name in state], {"action_dist_inputs": distribution.inputs}

    def compute_single_action(
        self,
        obs: Any,
        state: Sequence[Array] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Any = None,  # empty
        *,
        explore: bool | None = None,
        timestep: int | None = None,
        unsquash_actions: bool | None = None,
        clip_actions: bool | None = None,
    ) -> tuple[Any, list[Array], dict[str, Array]]:
        """As `compute_actions`, for one observation; returns the action, the state and `action_dist_inputs` [D]."""
        composite = self.observation_layout.composite and isinstance(obs, Mapping | tuple)
        rows = self.preprocessor.flatten(obs)[None] if composite else np.asarray(obs)[None]
        actions, after, extras = self.compute_actions(
            rows,
            None if state is None else self.one_state(state),
            None if prev_action is None else [prev_action],
            None if prev_reward is None else [prev_reward],
            None if info is None else [info],
            explore=explore,
            timestep=timestep,
            unsquash_actions=unsquash_actions,
            clip_actions=clip_actions,
        )
        return self.plain(actions[0]), [each[0] for each in after], {name: values[0] for name, values in extras.items()}

    def plain(self, action: Any) -> Any:
        """One of the actions of `compute_actions`, as a number of Python if it is a single number."""
        single = self.action_layout.shape == () and isinstance(action, np.ndarray | np.generic)
        return action.item() if single else action

    def given_state(self, rows: int, state: Sequence[Array] | None) -> RecurrentState:
        """A copy of a recurrent state [rows, ...] by name, or the first one; ConfigError for one of other shapes."""
        own = self.initial_state(rows)
        if not (given := _arrays(state)):
            return own
        self.check_state(own, given)
        return {name: each.astype(values.dtype) for (name, values), each in zip(own.items(), given, strict=True)}

    def one_state(self, state: Sequence[Array] | None) -> list[Array]:
        """The state [...] each of one observation, as [1, ...] each; the first one for None. ConfigError as above."""
        return list(self.given_state(1, [each[None] for each in _arrays(state)]).values())

    def check_state(self, own: RecurrentState, state: Sequence[Any]) -> None:
        """Raise ConfigError unless a state has arrays or tensors of the shapes of its `own`."""
        shapes, expected = [tuple(np.shape(each)) for each in state], [values.shape for values in own.values()]
        if shapes == expected:
            return
        given, wanted = ([shape[1:] for shape in each] for each in (shapes, expected))
        if given == wanted:
            given, wanted = shapes, expected  # another number of rows
        raise ConfigError(
            f"state has arrays of the shapes {given}, expected {wanted}: give what the call before returned."
        )

    def learn_on_batch(self, samples: Any) -> dict[str, Any]:
        """Improve the policy, by its algorithm's loss, on what workers sampled; returns `learner_stats`.

        `samples`: a `SampleBatch` of `concat_samples`, what `worker.sample()` returns, or a list of these. All workers
        get the new weights. Raises ConfigError for an algorithm that learns from something else.
        """
        if self.learn is None:
            raise ConfigError("this policy belongs to no learner. Ask that of algorithm.get_policy().")
        return self.learn(samples)

    def get_weights(self) -> dict[str, Array]:
        """Copies of all parameters by name."""
        self.have_weights()
        return {name: value.detach().cpu().numpy().copy() for name, value in self.named_parameters()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Overwrite parameters by name; ConfigError, before any change, names everything that does not fit.

        For the policy from `Algorithm.get_policy`, the learners read the new weights before their next use.
        """
        self.have_weights()
        if not isinstance(weights, Mapping):
            raise ConfigError(f"set_weights: {type(weights).__name__} is no mapping {{name: array}} of one policy.")
        own = dict(self.named_parameters())
        if wrong := [*weight_problems(own, weights)]:
            raise ConfigError("weights do not fit this policy:\n" + "\n".join(f"  {problem}" for problem in wrong))
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(torch.from_numpy(np.array(weights[name])))
        self.set_by_hand = True

    def import_weights(self, weights: Mapping[str, Array], names: Mapping[str, str] | None = None) -> None:
        """Overwrite parameters with weights from a file; `names` translates its names to those of this policy.

        A prefix from a wrapping module, here or in the file, needs no entry in `names`.
        """
        own = [name for name, _ in self.named_parameters()]
        with_tied = [name for name, _ in self.named_parameters(remove_duplicate=False)]
        self.set_weights(translated(weights, names or {}, own, with_tied))

    def require_choices(self, obs: Array) -> None:
        """Raise ConfigError for the first of N observations [N, *obs] whose mask excludes every action."""
        if self.action_mask is not None and len(stuck := np.flatnonzero(self.action_mask.excludes_all(obs))):
            raise ConfigError(
                f"observation {stuck[0]} of {len(obs)}: {self.action_mask.key!r} excludes every action. Allow at least "
                "one."
            )

    def _asked(self) -> Chooser:
        if self.chooser is None:
            raise ConfigError(
                "this policy belongs to no worker, and a worker knows how it explores and what the bounds of its "
                "actions are. Ask algorithm.get_policy() or worker.get_policy()."
            )
        self.have_weights()
        return self.chooser

    def have_weights(self) -> None:
        """Read the weights back, where a worker keeps them in a file."""
        if self.recall is not None:
            self.recall()

    def _flat_action(self, action: Any) -> Array:
        layout = self.action_layout
        try:
            flat = layout.flatten(action)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ConfigError(f"the previous action {action!r} is no value of {layout.space} ({error}).") from error
        if flat.shape != layout.shape:
            raise ConfigError(f"the previous action {action!r} is no value of {layout.space}.")
        return flat


def _arrays(state: Any) -> list[Array]:
    try:
        found = [] if state is None else [np.asarray(each) for each in state]
    except (TypeError, ValueError, RuntimeError):  # NumPy's, and torch's for what is not in this memory
        found = [np.empty(0, object)]
    if any(each.dtype.kind not in "biuf" for each in found):
        raise ConfigError(f"state={state!r} is no list of arrays of numbers: give what the call before returned.")
    return found


def _refuse_infos(infos: Sequence[Any]) -> None:
    for info in filter(None, infos):
        raise ConfigError(f"info={info!r} has no effect, as Reef's policies read observations alone. Leave it out.")


def _check_timestep(timestep: object) -> None:
    if timestep is not None and (isinstance(timestep, bool) or not isinstance(timestep, int) or timestep < 0):
        raise ConfigError(f"timestep={timestep!r}: expected environment steps, a whole number of 0 or more.")


def _write_previous(
    state: RecurrentState, name: str, values: Sequence[Any] | None, convert: Callable[[Any], Any]
) -> None:
    """Overwrite the newest of the earlier actions or rewards in a recurrent state that holds them."""
    if values is None or name not in state:
        return
    rows = state[name]
    if len(values) != len(rows):
        raise ConfigError(f"{len(values)} {name} for {len(rows)} observations: give one for each.")
    for row, value in zip(rows, values, strict=True):
        row[0] = convert(value)
