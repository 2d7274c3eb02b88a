"""The intrinsic curiosity module (Pathak et al. 2017)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from reef.config import AlgorithmConfig
from reef.learn.intrinsic.rewards import IntrinsicRewards
from reef.learn.minibatches import shuffled
from reef.learn.statistics import mean_stats
from reef.learn.trained_parameters import Reduce, TrainedParameters
from reef.nn.distributions import DistributionMaker
from reef.nn.dueling import Stream
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Loss, by_autograd
from reef.nn.layers.encoders import EncoderWithHead
from reef.rollout.exploration import Curiosity
from reef.spaces import Layout
from reef.types import State, Stats

# Rows of a gradient step of its networks.
MINIBATCH = 128
INPUTS = ("obs", "actions", "next_obs")


class CuriosityNetwork(nn.Module):
    """Features of observations, a forward model of the next ones, and an inverse model of the actions."""

    def __init__(self, observations: Layout, actions: Layout, settings: Curiosity) -> None:
        super().__init__()
        size = settings.feature_dim
        self.features = EncoderWithHead(observations, settings.feature_net, size)
        self.action_space, self.maker = actions.space, DistributionMaker(actions)
        self.real = isinstance(actions.space, spaces.Box)
        width = actions.size if self.real else self.maker.num_inputs
        sizes = settings.inverse_net_hiddens, settings.forward_net_hiddens
        self.inverse = Stream([2 * size, *sizes[0], width], settings.inverse_net_activation, nn.Linear)
        self.forward_model = Stream([size + width, *sizes[1], size], settings.forward_net_activation, nn.Linear)

    def forward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return forward and inverse losses, [N] each."""
        before, after = self.features(obs), self.features(next_obs)
        found = self.inverse(torch.cat([before, after], 1))
        if self.real:  # of a normal distribution with deviation 1
            inverse = 0.5 * (found - actions.reshape(len(actions), -1)).square().sum(-1)
        else:
            inverse = -self.maker(found).logp(actions)
        return self.forward_losses(before, actions, after), inverse

    def forward_losses(self, before: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        """[N] half the squared error of the predicted features [N, F] (eq. 5)."""
        predicted = self.forward_model(torch.cat([before, self._encoded(actions)], 1))
        losses: Tensor = 0.5 * (predicted - after).square().sum(-1)
        return losses

    def _encoded(self, actions: Tensor) -> Tensor:
        """[N, *action] -> [N, A]: indices as vectors with a single one, other actions as they are."""
        flat = actions.reshape(len(actions), -1)
        if isinstance(self.action_space, spaces.Discrete):
            return F.one_hot(flat[:, 0].long(), int(self.action_space.n)).float()
        if isinstance(self.action_space, spaces.MultiDiscrete):
            counts = np.ravel(self.action_space.nvec).tolist()
            return torch.cat([F.one_hot(flat[:, i].long(), count) for i, count in enumerate(counts)], 1).float()
        return flat.float()


class CuriosityRewards(IntrinsicRewards):
    """Rewards the error of the forward model, then improves its networks by one pass over the batch."""

    name: ClassVar[str] = "curiosity"

    def __init__(
        self,
        settings: Curiosity,
        observations: Layout,
        actions: Layout,
        config: AlgorithmConfig,
        *,
        seed: int,
        device: torch.device,
        reduce: Reduce | None,
    ) -> None:
        """`config`: of the algorithm, for clipping and optimizer; `reduce` averages a gradient over all learners."""
        super().__init__(device)
        self.settings, self.reduce = settings, reduce
        self.network = CuriosityNetwork(observations, actions, settings).to(device)
        self.flat = FlatParameters(self.network.parameters())
        names = "curiosity_loss", "curiosity_grad_gnorm"
        gradient = by_autograd(self.network, INPUTS, self.loss)
        self.trained = TrainedParameters(self.flat, gradient, config, lr=settings.lr, reduce=reduce, names=names)
        self.generator = torch.Generator().manual_seed(seed)

    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        """(1 - beta) times the inverse loss and beta times the forward loss (eq. 7)."""
        ahead, inverse = (losses.mean() for losses in outputs)
        beta = self.settings.beta
        stats = {"curiosity_forward_loss": ahead.detach(), "curiosity_inverse_loss": inverse.detach()}
        return Loss((1 - beta) * inverse + beta * ahead, stats)

    def of(self, columns: Columns) -> tuple[Tensor, Stats]:
        """[N] by the networks as they were before this batch."""
        with torch.no_grad():
            before, after = self.network.features(columns["obs"]), self.network.features(columns["next_obs"])
            found = self.settings.eta * self.network.forward_losses(before, columns["actions"], after)
        steps = [self.trained.descend(each) for each in shuffled(columns, MINIBATCH, 1, self.generator)]
        return found, mean_stats([step.stats for step in steps], self.reduce)

    def state(self) -> State:
        """Weights, optimizer and generator."""
        generator = self.generator.get_state().numpy().copy()
        return {"weights": self.flat.numpy(), "optimizer": self.trained.state(), "generator": generator}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.flat.load(state["weights"])
        self.trained.set_state(state["optimizer"])
        self.generator.set_state(torch.from_numpy(np.array(state["generator"])))
