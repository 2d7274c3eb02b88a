"""Policies and trainers made of functions: a loss, and perhaps statistics.

Rollout [T, B] -> rows, as named in a SampleBatch -> one gradient step on what the loss function returns -> new weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from reef.batch import Rollout
from reef.callbacks.hooks import guarded
from reef.callbacks.sample_batch import SampleBatch
from reef.config import AlgorithmConfig, Scheduled, default
from reef.config.aliases import translate
from reef.config.loading import load_function
from reef.envs.by_policy import Columns as PolicyColumns
from reef.errors import CallbackError, ConfigError
from reef.learn.device import to_device
from reef.learn.learner import Learner
from reef.learn.minibatches import in_order, row_count
from reef.nn.custom import scalar_loss
from reef.nn.gradients import Columns, Loss
from reef.nn.policies import Policy
from reef.nn.queries.model import NetworkPart
from reef.rollout.exploration.on_request import OnRequest
from reef.rollout.policy_runner import PolicyRunner
from reef.run.algorithm import Algorithm
from reef.run.flows.on_policy import on_policy
from reef.run.inference import learnable
from reef.spaces import Space
from reef.types import PolicyId, Stats

LossFn = Callable[[Policy, Any, Any, Mapping[str, Tensor]], Tensor]
StatsFn = Callable[[Policy, Mapping[str, Tensor]], Mapping[str, Any]]


class LossFunctionConfig(AlgorithmConfig):
    """Settings of a trainer with a loss function: those that all algorithms share."""

    policy_class: ClassVar[str] = "reef.nn.make:actor_critic"

    lr: Scheduled = default(1e-4)
    train_batch_size: int = default(200)
    rollout_fragment_length: int | Literal["auto"] = default("auto")

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        yield from self.batch_size_problems()
        if self.torch_compile_learner:
            yield "torch_compile_learner=True: a loss function of your own is not compiled. Set it to False."


class Unasked(NetworkPart):
    """A network whose loss function asks it itself."""

    def forward(self) -> None:
        """Nothing."""


class LossFunctionLearner(Learner[Rollout]):
    """One gradient step on the whole batch; the loss is that of `template`."""

    template: ClassVar[PolicyTemplate]

    def setup(self) -> None:
        """Train the whole policy."""
        self.parameters = self.train_by(self.loss, Unasked(self.policy), (), lr=self.config.lr)

    def prepare(self, batch: Rollout) -> Columns:
        """The valid steps as columns [N, ...] by the names of a SampleBatch."""
        rows = SampleBatch.of_steps(batch)
        return {name: to_device(np.ascontiguousarray(array), self.device) for name, array in rows.items()}

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """All rows at once."""
        return in_order(columns, row_count(columns), self.rank, self.world_size)

    def loss(self, outputs: None, minibatch: Columns) -> Loss:
        """What the loss function returns; CallbackError where that cannot be descended."""
        template, policy = self.template, self.policy
        value = guarded(template.where, template.loss_fn, policy, policy.model, policy.dist_class, minibatch)
        return Loss(scalar_loss(template.where, value), template.stats(policy, minibatch))


class LossFunctionAlgorithm(Algorithm):
    """Sample a batch, take a step, publish the weights."""

    config_class = LossFunctionConfig
    learner_class = LossFunctionLearner

    def training_step(self) -> dict[PolicyId, Stats]:
        """One iteration of the on-policy flow."""
        return on_policy(self)


@dataclass(frozen=True)
class PolicyTemplate:
    """What `build_torch_policy` returns. Called with two spaces and settings, it makes a policy."""

    name: str
    loss_fn: LossFn
    stats_fn: StatsFn | None = None

    @property
    def where(self) -> str:
        """What messages call the loss function."""
        return f"{self.name}: loss_fn {getattr(self.loss_fn, '__name__', 'without a name')}"

    def learner_class(self, name: str) -> type[LossFunctionLearner]:
        """A learner with this loss."""
        return type(f"{name}Learner", (LossFunctionLearner,), {"template": self, "__module__": self.loss_fn.__module__})

    def stats(self, policy: Policy, minibatch: Columns) -> dict[str, Tensor]:
        """The statistics of a step, as scalars."""
        if self.stats_fn is None:
            return {}
        where = f"{self.name}: stats_fn"
        found = guarded(where, self.stats_fn, policy, minibatch)
        try:
            return {str(name): torch.as_tensor(value).detach().float().reshape(()) for name, value in found.items()}
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise CallbackError(f"{where} returned {found!r}: expected numbers by name ({error}).") from error

    def __call__(
        self, observation_space: Space, action_space: Space, config: Mapping[str, Any] | None = None
    ) -> Policy:
        """A policy with a learner of its own; `learn_on_batch` improves it. ConfigError for wrong settings."""
        settings = LossFunctionConfig.from_dict(config or {}).checked()
        columns = PolicyColumns.of(settings, observation_space, action_space, np.arange(1))
        runner, kind = PolicyRunner(settings, 0, columns), self.learner_class(self.name)
        learner, policy = kind(settings, observation_space, action_space), runner.policy
        policy.flat.load(learner.weights())
        timestep = 0

        def learn(samples: Any) -> dict[str, Any]:
            nonlocal timestep
            if policy.set_by_hand:
                learner.set_weights(policy.flat.numpy())
                policy.set_by_hand = False
            batch = learnable(samples, kind, settings, policy)
            timestep += len(batch)
            stats = learner.update(batch, timestep).stats  # type: ignore[arg-type]
            policy.flat.load(learner.weights())
            return {"learner_stats": stats}

        policy.chooser, policy.learn = OnRequest(runner, settings, lambda: timestep), learn
        return policy


def build_torch_policy(name: str, *, loss_fn: LossFn, stats_fn: StatsFn | None = None) -> PolicyTemplate:
    """A policy from a loss function, for `build_trainer`, or to be made by itself.

    `loss_fn(policy, model, dist_class, train_batch)` returns a scalar; `train_batch` has tensors [N, ...] by the names
    of a `SampleBatch`. `stats_fn(policy, train_batch)` returns numbers by name, to report. Raises ConfigError for
    functions with other arguments.
    """
    _check_name("build_torch_policy", name)
    load_function(loss_fn, "loss_fn", "policy", "model", "dist_class", "train_batch")
    if stats_fn is not None:
        load_function(stats_fn, "stats_fn", "policy", "train_batch")
    return PolicyTemplate(name, loss_fn, stats_fn)


def build_trainer(
    name: str, *, default_policy: PolicyTemplate, default_config: Mapping[str, Any] | None = None
) -> type[LossFunctionAlgorithm]:
    """Return an algorithm that trains policies of this kind.

    Assign it to a variable of that `name`, at the top of the module of the loss function. `default_config` has settings
    that differ from the defaults. Raises ConfigError for a wrong name, policy or setting.
    """
    _check_name("build_trainer", name)
    if not isinstance(default_policy, PolicyTemplate):
        raise ConfigError(
            f"build_trainer: default_policy={default_policy!r}: expected what build_torch_policy returns."
        )
    module = default_policy.loss_fn.__module__
    given = translate(default_config or {})
    if wrong := [*LossFunctionConfig.from_dict(given).wrong_values()]:
        raise ConfigError("\n".join(["build_trainer: default_config:", *wrong]))
    defaults = {LossFunctionConfig.by_key[key].name: default(value) for key, value in given.items()}
    places = {"__module__": module, "__qualname__": f"{name}.config_class"}
    settings = type(f"{name}Config", (LossFunctionConfig,), defaults | places)
    learner = default_policy.learner_class(name)
    own = {"__module__": module, "__qualname__": name, "config_class": settings, "learner_class": learner}
    return type(name, (LossFunctionAlgorithm,), own)


def _check_name(function: str, name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"{function}: name={name!r}: expected the name of a variable, such as 'MyPolicy'.")
