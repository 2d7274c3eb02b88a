"""The learner of one policy: prepare -> minibatches -> step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from reef.batch import Rollout, Transitions
from reef.config import AlgorithmConfig
from reef.errors import TrainingError
from reef.learn.device import learner_device
from reef.learn.statistics import mean_stats
from reef.learn.trained_parameters import Reduce, TrainedParameters
from reef.nn.fast import fast_gradient
from reef.nn.fast.compiled import compiled_gradient
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Gradient, Loss, LossFunction, by_autograd
from reef.nn.make import make_policy
from reef.types import Array, State, Stats

Batch = TypeVar("Batch", Rollout, Transitions)
WHOLE = "policy"  # what is trained where one loss trains the whole policy


class Update(NamedTuple):
    """What an update reports."""

    stats: Stats
    # [steps, rows of this learner] each: one value per row, such as TD errors
    rows: dict[str, Array]


class Learner(ABC, Generic[Batch]):
    """Owns a policy, what trains its parameters, and a random generator.

    Several learners (`world_size` > 1) get the same batch, draw the same permutation and take every `world_size`-th
    part of each minibatch; `reduce` between backward and step makes their gradient that of the whole minibatch.
    """

    # the type of its batches
    learns_from: type[Rollout | Transitions] = Rollout

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
        """`rank` of `world_size` learners; raises ResourceError when the GPU asked for is not there."""
        self.config = config
        self.rank, self.world_size, self.reduce = rank, world_size, reduce
        self.device = learner_device(config)
        seed = config.seed if config.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # layers draw their initial weights from torch's own generator
            self.policy = make_policy(config, observation_space, action_space, self.device)
        # what is trained, by name
        self.trained: dict[str, TrainedParameters] = {}
        self.setup()

    def setup(self) -> None:
        """Say which parameters are trained by which loss: here the whole policy by `loss`."""
        self.parameters = self.train_by(self.loss, self.policy, self.policy.inputs, lr=self.config.lr)

    def train_by(
        self, loss: LossFunction, network: nn.Module, inputs: Sequence[str], *, lr: Any, name: str = WHOLE
    ) -> TrainedParameters:
        """Train `network`, which is the policy or a part of it, by `loss` of what it makes of the columns `inputs`.

        `lr` is a number or a schedule; several such losses of a learner need a `name` each.
        """
        flat = self.policy.flat if network is self.policy else self.policy.flat.part(network.parameters())
        names = ("total_loss", "grad_gnorm") if name == WHOLE else (f"{name}_loss", f"{name}_grad_gnorm")
        gradient = self._gradient(network, flat, inputs, loss)
        made = TrainedParameters(flat, gradient, self.config, lr=lr, reduce=self.reduce, names=names)
        self.trained[name] = made
        return made

    @property
    def minibatch_size(self) -> int:
        """Rows of a gradient step over all learners."""
        return self.config.total_train_batch_size

    @abstractmethod
    def prepare(self, batch: Batch) -> Columns:
        """A batch as columns to cut minibatches from: everything that does not change during the update."""

    @abstractmethod
    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """This learner's parts of all minibatches of an update, in order."""

    def loss(self, outputs: Any, minibatch: Columns) -> Loss:
        """The loss of what the policy made of `inputs`, for learners whose `setup` names no others."""
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
        steps = [self.step(minibatch) for minibatch in self.minibatches(self.prepare(batch))]
        rates = {"cur_lr" if name == WHOLE else f"{name}_lr": each.optimizer.lr for name, each in self.trained.items()}
        stats = self.adapt(mean_stats([step.stats for step in steps], self.reduce) | rates)
        names = steps[0].rows if steps else ()
        return Update(stats, {name: torch.stack([step.rows[name] for step in steps]).cpu().numpy() for name in names})

    def begin(self, timestep: int) -> None:
        """Set what follows a schedule; subclasses extend."""
        for trained in self.trained.values():
            trained.begin(timestep)

    def adapt(self, stats: Stats) -> Stats:
        """Follow what an update reports, as an adaptive coefficient does, and report more; subclasses extend."""
        return stats

    def _gradient(
        self, network: nn.Module, flat: FlatParameters, inputs: Sequence[str], loss: LossFunction
    ) -> Gradient:
        """How the gradient of `loss` is computed: compiled, as set, by a faster equal of it, or by autograd."""
        if self.config.torch_compile_learner:
            gradient = compiled_gradient(network, flat, inputs, loss, self.config)
        else:
            gradient = fast_gradient(network, flat, inputs, loss) or by_autograd(network, inputs, loss)
        # cuDNN computes the gradient of an LSTM in training mode alone
        kinds = (_DropoutNd, nn.RNNBase) if self.device.type == "cuda" else _DropoutNd
        if self.config.model.custom_model or any(isinstance(module, kinds) for module in network.modules()):
            return self._in_training_mode(gradient)
        return gradient

    def _in_training_mode(self, gradient: Gradient) -> Gradient:
        """`gradient` with what works in learning alone, such as Dropout, by draws of this learner's own generator."""
        # torch.manual_seed looks for devices of every kind, which takes longer than a small network's gradient
        seed = torch.manual_seed if self.device.type == "cuda" else torch.default_generator.manual_seed

        def training(minibatch: Columns) -> Loss:
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                draw = int(torch.randint(2**62, (), generator=self.generator))  # of all learners alike
                seed(draw + self.rank)
                self.policy.train()
                try:
                    return gradient(minibatch)
                finally:
                    self.policy.eval()

        return training

    def weights(self) -> Array:
        """All parameters as one vector, for publishing."""
        return self.policy.flat.numpy()

    def set_weights(self, weights: Array) -> None:
        """Overwrite all parameters by one vector."""
        self.policy.flat.load(weights)

    def state(self) -> State:
        """Everything that a checkpoint needs to go on bit for bit."""
        return {
            "weights": self.weights(),
            "optimizers": {name: trained.state() for name, trained in self.trained.items()},
            "generator": self.generator.get_state().numpy().copy(),
        }

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        self.set_weights(state["weights"])
        self.generator.set_state(torch.from_numpy(np.array(state["generator"])))
        for name, trained in self.trained.items():
            trained.set_state(state["optimizers"][name])
