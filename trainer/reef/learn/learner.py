"""The learner of one policy: prepare -> minibatches -> loss -> step."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from reef.batch import Rollout, Transitions
from reef.config import AlgorithmConfig
from reef.errors import TrainingError
from reef.learn.adam import Adam
from reef.learn.clipping import clip_gradient
from reef.learn.compiled import compile_gradient
from reef.learn.device import learner_device
from reef.nn.policies import make_policy
from reef.schedules import Schedule
from reef.types import Array, State, Stats

Columns = dict[str, Tensor]  # equally long columns on the learner's device
Loss = Callable[[Columns], tuple[Tensor, dict[str, Tensor]]]  # the mean, and what to report
Reduce = Callable[[Tensor], None]  # average a flat gradient over all learners, in place


class Learner(ABC):
    """Owns a policy, its optimizer and a random generator.

    Several learners (`world_size` > 1) get the same batch, draw the same permutation and take every `world_size`-th
    part of each minibatch; `reduce` between backward and step makes their gradient that of the whole minibatch.
    """

    passes = 1  # over each batch
    minibatch_size: int | None = None  # rows over all learners; None: the whole batch

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
            self.policy = make_policy(config, observation_space, action_space)
        self.policy.finish(self.device)
        self.policy.eval()
        self.lr = Schedule(config.lr)
        optimizer: dict[str, Any] = config.optimizer
        self.optimizer = Adam(self.policy.flat, self.lr(0), **optimizer)
        self.backward = self._make_backward()
        if config.model.custom_model or any(isinstance(module, _DropoutNd) for module in self.policy.modules()):
            self.backward = self._in_training_mode(self.backward)

    def _make_backward(self) -> Loss:
        """The function that computes a minibatch's loss and fills the flat gradient: eager, or compiled as set."""
        config = self.config
        differentiate = self.differentiate
        if config.torch_compile_learner:
            options: dict[str, Any] = {
                "backend": config.torch_compile_learner_dynamo_backend,
                "mode": config.torch_compile_learner_dynamo_mode,
                "fullgraph": True,  # what cannot be compiled is an error, and not silently slow
            }
            if config.torch_compile_learner_what_to_compile == "complete_update":
                return compile_gradient(self.policy, self.loss, **options)
            differentiate = partial(_by_autograd, torch.compile(self.loss, **options))

        def backward(minibatch: Columns) -> tuple[Tensor, dict[str, Tensor]]:
            self.policy.flat.gradient.zero_()
            return differentiate(minibatch)

        return backward

    def _in_training_mode(self, backward: Loss) -> Loss:
        """`backward` with what works in learning alone, such as Dropout, by draws of this learner's own generator."""
        # torch.manual_seed looks for devices of every kind, which takes longer than a small network's gradient
        seed = torch.manual_seed if self.device.type == "cuda" else torch.default_generator.manual_seed

        def training(minibatch: Columns) -> tuple[Tensor, dict[str, Tensor]]:
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                draw = int(torch.randint(2**62, (), generator=self.generator))  # of all learners alike
                seed(draw + self.rank)
                self.policy.train()
                try:
                    return backward(minibatch)
                finally:
                    self.policy.eval()

        return training

    def differentiate(self, minibatch: Columns) -> tuple[Tensor, dict[str, Tensor]]:
        """Give the parameters, whose gradients are zero, those of `loss`; returns what `loss` does.

        Subclasses whose loss has a gradient in closed form may write it out: autograd's overhead is what small
        minibatches pay for most.
        """
        return _by_autograd(self.loss, minibatch)

    @abstractmethod
    def prepare(self, batch: Rollout) -> Columns:
        """A batch as columns to cut minibatches from: everything that does not change during the update."""

    @abstractmethod
    def loss(self, minibatch: Columns) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of a minibatch and what to report of it (detached scalars)."""

    def update(self, batch: Rollout | Transitions, timestep: int) -> Stats:
        """Improve the policy; `timestep` (environment steps so far) drives the schedules."""
        if not isinstance(batch, Rollout):
            raise TypeError(f"{type(self).__name__} learns from a Rollout, not from {type(batch).__name__}")
        if not batch.mask.any():
            raise TrainingError("the train batch holds no step that worked: every environment raised in each of them.")
        self.begin(timestep)
        columns = self.prepare(batch)
        stats = [self.step(minibatch) for minibatch in self.minibatches(columns)]
        return mean_stats(stats, self.reduce) | {"cur_lr": self.optimizer.lr}

    def begin(self, timestep: int) -> None:
        """Set what follows a schedule; subclasses extend."""
        self.optimizer.lr = self.lr(timestep)

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """`passes` over the rows in random order, in parts of `minibatch_size`; a short rest is left out.

        Rows are gathered once per pass, so that minibatches are slices.
        """
        rows = len(next(iter(columns.values())))
        size = min(self.minibatch_size or rows, rows)
        for _ in range(self.passes):
            order = torch.randperm(rows, generator=self.generator).to(self.device)
            shuffled = {name: column.index_select(0, order) for name, column in columns.items()}
            for start in range(0, rows - size + 1, size):
                span = self.my_part(start, size)
                yield {name: column[span] for name, column in shuffled.items()}

    def my_part(self, start: int, size: int) -> slice:
        """The slice of a minibatch that this learner computes; parts are equally long, so that gradients average."""
        part = size // self.world_size
        return slice(start + self.rank * part, start + (self.rank + 1) * part)

    def step(self, minibatch: Columns) -> dict[str, Tensor]:
        """One gradient step; raises TrainingError, with the weights as they were, when the gradient is not finite."""
        flat = self.policy.flat
        loss, stats = self.backward(minibatch)
        if self.reduce is not None:
            self.reduce(flat.gradient)
        norm = flat.gradient.norm()
        length = norm.item()
        if not math.isfinite(length):
            raise self._not_finite(loss.item(), length, minibatch)
        clip_gradient(flat, length, self.config.grad_clip, self.config.grad_clip_by)
        frozen = flat.frozen()
        self.optimizer.step()
        for parameter, before in frozen:  # momentum would move it
            parameter.detach().copy_(before)
        return stats | {"total_loss": loss, "grad_gnorm": norm}

    def _not_finite(self, loss: float, norm: float, minibatch: Columns) -> TrainingError:
        guilty = [name for name, column in minibatch.items() if not torch.isfinite(column).all()]
        cause = f"the columns {guilty} hold NaN or infinite values" if guilty else "its inputs are finite"
        error = TrainingError(
            f"loss {loss} with gradient norm {norm} is not finite ({cause}); the step was not taken. "
            "Lower lr, set grad_clip, or look at the environment's rewards and observations."
        )
        error.statistics = {"total_loss": loss, "grad_gnorm": norm}
        return error

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
            "optimizer": self.optimizer.state(),
            "generator": self.generator.get_state().numpy().copy(),
        }

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        self.set_weights(state["weights"])
        self.generator.set_state(torch.from_numpy(np.array(state["generator"])))
        self.optimizer.set_state(state["optimizer"])


def _by_autograd(loss: Loss, minibatch: Columns) -> tuple[Tensor, dict[str, Tensor]]:
    value, stats = loss(minibatch)
    torch.autograd.backward(value)
    return value.detach(), stats


def mean_stats(stats: list[dict[str, Tensor]], reduce: Reduce | None) -> Stats:
    """The mean of each reported scalar over all learners and the steps that report it, with one transfer to the CPU.

    Raises TrainingError when several learners report different names.
    """
    if not stats:
        return {}
    first = stats[0]
    if reduce is None and all(step.keys() == first.keys() for step in stats):
        means = torch.stack([torch.stack([step[name] for name in first]) for step in stats]).mean(0)
        return dict(zip(first, means.tolist(), strict=True))
    names = sorted({name for step in stats for name in step})
    reported = {name: [step[name] for step in stats if name in step] for name in names}
    sums = torch.stack([torch.stack(values).sum() for values in reported.values()])
    counts = torch.tensor([len(values) for values in reported.values()], dtype=sums.dtype, device=sums.device)
    if reduce is not None:  # what follows from a statistic, such as the KL penalty, must be the same everywhere
        _check_same_names(names, reduce, sums.device)
        both = torch.stack([sums, counts])
        reduce(both)
        sums, counts = both
    return dict(zip(names, (sums / counts).tolist(), strict=True))


def _check_same_names(names: list[str], reduce: Reduce, device: torch.device) -> None:
    """Raise TrainingError in every learner unless all have the same names: sums of other things would be added up."""
    code = zlib.crc32("\n".join(names).encode()) & 0xFFFFFF
    moments = torch.tensor([code, code * code], dtype=torch.float64, device=device)
    reduce(moments)
    mean, mean_square = moments.tolist()
    if mean * mean != mean_square:  # the variance over the learners is not zero
        raise TrainingError(
            f"the learners report different statistics in one update, this one {names}. With several learners, let "
            "`loss` report the same names for every minibatch."
        )
