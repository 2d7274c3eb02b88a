"""The learner of one policy: prepare -> minibatches -> step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from reef.batch import FragmentGradient, Perturbations, Rollout, Transitions
from reef.callbacks.hooks import number_of
from reef.callbacks.sample_batch import SampleBatch, connect, writable
from reef.config import AlgorithmConfig
from reef.config.loading import load_function
from reef.errors import TrainingError
from reef.learn.adam import Optimizer
from reef.learn.device import learner_device
from reef.learn.intrinsic import make_intrinsic_rewards
from reef.learn.optimizers import make_optimizer
from reef.learn.statistics import mean_stats
from reef.learn.trained_parameters import Reduce, TrainedParameters
from reef.nn.custom import with_custom_loss
from reef.nn.fast import fast_gradient
from reef.nn.fast.compiled import compiled_gradient
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Gradient, Loss, LossFunction, by_autograd, in_training_mode
from reef.nn.make import make_policy
from reef.nn.recurrent import with_sampled_rewards
from reef.types import Array, State, Stats

Batch = TypeVar("Batch", Rollout, Transitions, Perturbations)
# Name of the trained parameters if one loss trains the whole policy.
WHOLE = "policy"


class Update(NamedTuple):
    """The result of an update."""

    stats: Stats
    # [steps, rows of this learner] each: one value per row, such as TD errors
    rows: dict[str, Array]


class Learner(ABC, Generic[Batch]):
    """Owns a policy, its trained parameters, and a random generator.

    Several learners (`world_size` > 1) get the same batch, draw the same permutation, and each takes its part of every
    minibatch; `reduce`, between backward pass and step, averages the gradient over the whole minibatch.
    """

    # Type of the learner's batches.
    learns_from: type[Rollout | Transitions | Perturbations | FragmentGradient] = Rollout

    def __init__(
        self,
        config: AlgorithmConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        rank: int = 0,
        world_size: int = 1,
        reduce: Reduce | None = None,
    ) -> None:
        """`rank` of `world_size` learners; raises ResourceError if a requested GPU does not exist."""
        self.config = config
        self.hooks = config.hooks("on_learn_on_batch")
        given = config.learner_connector
        self.connector = None if given is None else load_function(given, "learner_connector", "batch")
        self.changes_batches = self.connector is not None or "on_learn_on_batch" in self.hooks
        self.rank, self.world_size, self.reduce = rank, world_size, reduce
        self.device = learner_device(config)
        seed = config.seed if config.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
        self.generator = torch.Generator().manual_seed(seed)
        self.policy = make_policy(config, observation_space, action_space, self.device, seed)
        # Trained parameters by name.
        self.trained: dict[str, TrainedParameters] = {}
        self.setup()
        self.intrinsic = make_intrinsic_rewards(
            config, self.policy, self.learns_from, seed=seed, device=self.device, reduce=reduce
        )

    def setup(self) -> None:
        """Define which parameters are trained by which loss; by default the whole policy by `loss`."""
        self.parameters = self.train_by(self.loss, self.policy, self.policy.inputs, lr=self.config.lr)

    def train_by(
        self, loss: LossFunction, network: nn.Module, inputs: Sequence[str], *, lr: Any, name: str = WHOLE
    ) -> TrainedParameters:
        """Train `network`, the policy or a part of it, by `loss`, a function of its outputs for the columns `inputs`.

        `lr` is a number or a schedule. A learner with several losses gives each a `name`.
        """
        flat = self.policy.flat if network is self.policy else self.policy.flat.part(network.parameters())
        names = ("total_loss", "grad_gnorm") if name == WHOLE else (f"{name}_loss", f"{name}_grad_gnorm")
        if name == WHOLE:
            loss = with_custom_loss(self.policy, loss)
        gradient = self._gradient(network, flat, inputs, loss)
        make = partial(self.configure_optimizer, name)
        made = TrainedParameters(flat, gradient, self.config, lr=lr, reduce=self.reduce, names=names, optimizer=make)
        self.trained[name] = made
        return made

    def configure_optimizer(self, name: str, flat: FlatParameters, lr: float) -> Optimizer:
        """Return what moves the parameters `flat` that the loss `name` trains; overrides may make `TorchOptimizers`."""
        return make_optimizer(flat, lr, self.config.optimizer)

    @property
    def minibatch_size(self) -> int:
        """Rows per gradient step, over all learners."""
        return self.config.total_train_batch_size

    @abstractmethod
    def prepare(self, batch: Batch) -> Columns:
        """Return a batch as columns for minibatches, with everything that is constant during the update."""

    @abstractmethod
    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Yield this learner's parts of all minibatches of an update, in order."""

    def loss(self, outputs: Any, minibatch: Columns) -> Loss:
        """The loss of the policy's outputs for `inputs`; used unless `setup` names other losses."""
        raise NotImplementedError(f"{type(self).__name__} needs a loss")

    def step(self, minibatch: Columns) -> Loss:
        """One gradient step."""
        return self.parameters.descend(minibatch)

    def update(self, batch: Batch, timestep: int) -> Update:
        """Improve the policy; `timestep` (environment steps so far) drives the schedules."""
        if not isinstance(batch, self.learns_from):
            kinds = self.learns_from.__name__, type(batch).__name__
            raise TypeError(f"{type(self).__name__} learns from {kinds[0]}, not from {kinds[1]}")
        if isinstance(batch, Rollout) and not batch.mask.any():
            raise TrainingError("the train batch holds no step that worked: every environment raised in each of them.")
        self.begin(timestep)
        batch, own = self.before_learning(batch) if self.changes_batches else (batch, {})
        if self.intrinsic is not None and isinstance(batch, Rollout | Transitions):
            batch, found = self.intrinsic.add(batch)
            own = own | found
        steps = [self.step(minibatch) for minibatch in self.minibatches(self.prepare(batch))]
        rates = {"cur_lr" if name == WHOLE else f"{name}_lr": each.optimizer.lr for name, each in self.trained.items()}
        stats = self.adapt(mean_stats([step.stats for step in steps], self.reduce) | rates)
        names = steps[0].rows if steps else ()
        return Update(
            stats | own, {name: torch.stack([step.rows[name] for step in steps]).cpu().numpy() for name in names}
        )

    def before_learning(self, batch: Batch) -> tuple[Batch, Stats]:
        """Return the batch after learner_connector and on_learn_on_batch, and the numbers that the hook reports."""
        if not isinstance(batch, Rollout | Transitions):
            return batch, {}
        batch = with_sampled_rewards(writable(batch))
        if self.connector is not None:
            connect(self.connector, SampleBatch.of(batch))
        result: dict[str, Any] = {}
        self.hooks.call("on_learn_on_batch", policy=self.policy, train_batch=SampleBatch.of(batch), result=result)
        return batch, {str(key): number_of("result", key, value) for key, value in result.items()}

    def begin(self, timestep: int) -> None:
        """Apply schedules before an update; subclasses extend it."""
        for trained in self.trained.values():
            trained.begin(timestep)

    def adapt(self, stats: Stats) -> Stats:
        """Adapt coefficients to the statistics of an update, and return more statistics; subclasses extend it."""
        return stats

    def _gradient(
        self, network: nn.Module, flat: FlatParameters, inputs: Sequence[str], loss: LossFunction
    ) -> Gradient:
        """Return how the gradient of `loss` is computed: compiled if set, by a fast equivalent, or by autograd."""
        if self.config.torch_compile_learner:
            gradient = compiled_gradient(network, flat, inputs, loss, self.config)
        else:
            gradient = fast_gradient(network, flat, inputs, loss) or by_autograd(network, inputs, loss)
        # cuDNN can compute the gradient of an LSTM only in training mode.
        kinds = (_DropoutNd, nn.RNNBase) if self.device.type == "cuda" else _DropoutNd
        if self.config.model.custom_model or any(isinstance(module, kinds) for module in network.modules()):
            return in_training_mode(gradient, self.policy, self.generator, self.rank)
        return gradient

    def weights(self) -> Array:
        """All parameters as one vector, for publishing to workers."""
        return self.policy.flat.numpy()

    def set_weights(self, weights: Array) -> None:
        """Overwrite all parameters with one vector."""
        self.policy.flat.load(weights)

    def state(self) -> State:
        """Everything that a checkpoint needs for a bit-exact resume."""
        return {
            "weights": self.weights(),
            "optimizers": {name: trained.state() for name, trained in self.trained.items()},
            "generator": self.generator.get_state().numpy().copy(),
            **({} if self.intrinsic is None else {self.intrinsic.name: self.intrinsic.state()}),
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.set_weights(state["weights"])
        self.generator.set_state(torch.from_numpy(np.array(state["generator"])))
        for name, trained in self.trained.items():
            trained.set_state(state["optimizers"][name])
        # A checkpoint of training without them has none.
        if self.intrinsic is not None and self.intrinsic.name in state:
            self.intrinsic.set_state(state[self.intrinsic.name])
