"""Q-networks: plain or dueling heads, values or value distributions, fixed or noisy weights, with or without memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from reef.batch import Rollout
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.architecture import Architecture
from reef.nn.custom import custom_module
from reef.nn.distributions import ActionDistribution
from reef.nn.layers.activations import ACTIVATIONS
from reef.nn.layers.encoders import Encoder
from reef.nn.policies import Policy
from reef.nn.queries.q_model import QModel
from reef.nn.recurrent import PREVIOUS, VALID, EncoderWithMemory, RecurrentPolicy, Unrolled, one_step
from reef.types import Array, RecurrentState


class NoisyLinear(nn.Module):
    """A linear layer with learned, factorised Gaussian noise on its weights (Fortunato et al. 2018, eq. 9 to 11).

    The noise is zero at first, so only the mean weights count. `draw` samples it, `still` sets it back to zero.
    """

    def __init__(self, in_features: int, out_features: int, sigma0: float) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma0 * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma0 * bound))
        self.in_noise: Tensor
        self.out_noise: Tensor
        self.register_buffer("in_noise", torch.zeros(in_features), persistent=False)
        self.register_buffer("out_noise", torch.zeros(out_features), persistent=False)

    def draw(self, generator: torch.Generator) -> None:
        """Sample new noise for all rows of the next forward passes."""
        for noise in (self.in_noise, self.out_noise):
            drawn = torch.empty(noise.shape).normal_(generator=generator)  # on the CPU, where the generator is
            noise.copy_(drawn.sign() * drawn.abs().sqrt())

    def still(self) -> None:
        """Set the noise to zero, which leaves the mean weights."""
        self.in_noise.zero_()
        self.out_noise.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] -> [N, out]; applies the noise without computing the noisy weight matrix."""
        noise = F.linear(x * self.in_noise, self.weight_sigma, self.bias_sigma)
        return F.linear(x, self.weight, self.bias) + noise * self.out_noise


class Stream(nn.Module):
    """Hidden layers and an output layer, all plain or all noisy."""

    def __init__(self, sizes: Sequence[int], activation: str, linear: Callable[[int, int], nn.Module]) -> None:
        """`sizes`: number of inputs, sizes of the hidden layers, number of outputs."""
        super().__init__()
        self.hidden = nn.ModuleList(linear(before, after) for before, after in pairwise(sizes[:-1]))
        self.output = linear(sizes[-2], sizes[-1])
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] -> [N, out]."""
        for layer in self.hidden:
            x = self.activation(layer(x))
        return self.output(x)  # type: ignore[no-any-return]


class QPolicy(Policy):
    """Action values Q(s, a) from an encoder and, unless dueling is off, separate streams for V(s) and A(s, a).

    The dueling sum is Q = V + A - mean(A) (Wang et al. 2016, eq. 9). With several atoms, every action has a
    distribution over returns, and Q is its mean.
    """

    model_class = QModel

    def __init__(
        self,
        config: AlgorithmConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        dueling: bool = False,
        hiddens: Sequence[int] = (),  # sizes of the hidden layers of each stream
        num_atoms: int = 1,
        v_min: float = 0.0,  # the smallest and the largest return that the atoms can hold
        v_max: float = 0.0,
        noisy: bool = False,
        sigma0: float = 0.5,  # initial scale of the noise
    ) -> None:
        """Raises ConfigError unless the action space is Discrete."""
        super().__init__(config, observation_space, action_space)
        if not isinstance(action_space, spaces.Discrete):
            others = "BC or MARWIL" if config.reads_records else "PPO"
            raise ConfigError(
                f"algorithm={config.algorithm!r} needs a Discrete action space, but the environment's is "
                f"{action_space}. Use {others}."
            )
        self.acting_extras = ("action_dist_inputs",) if config.workers_estimate_values else ()
        self.actions, self.noisy, self.num_atoms = int(action_space.n), noisy, num_atoms
        self.bounds = {"v_min": v_min, "v_max": v_max}
        self.streams = {"dueling": dueling, "hiddens": list(hiddens), "noisy": noisy, "num_atoms": num_atoms}
        self.atoms: Tensor
        self.register_buffer("atoms", torch.linspace(v_min, v_max, num_atoms), persistent=False)
        self.module: nn.Module | None = None
        self.value: Stream | None = None
        if config.model.custom_model:
            outputs = self.actions * num_atoms
            self.module = custom_module(config, observation_space, action_space, outputs, critic=False)
            self.num_features = outputs
            return
        self.encoder = Encoder(self.input_layout, config.model)
        self.num_features = self.stream_inputs(config)
        hidden = [self.num_features, *hiddens]
        linear = (lambda i, o: NoisyLinear(i, o, sigma0)) if noisy else nn.Linear
        activation = config.model.fcnet_activation
        self.advantage = Stream([*hidden, self.actions * num_atoms], activation, linear)
        if dueling:
            self.value = Stream([*hidden, num_atoms], activation, linear)

    def stream_inputs(self, config: AlgorithmConfig) -> int:
        """The number of features that the streams read: the encoder's."""
        return self.encoder.out_features

    def architecture(self) -> Architecture:
        """The policy's architecture with the atoms and the settings of the streams."""
        architecture = super().architecture()
        if self.num_atoms > 1:
            architecture["parts"] |= self.bounds
        if self.module is None:
            architecture["settings"] |= self.streams | self.bounds
        return architecture

    def forward(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> logits [N, A, atoms] of the return distributions; with one atom the Q-values [N, A]."""
        return self.stream_outputs(self.features(obs))

    def features(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> what the streams read [N, F]; of a custom model its outputs [N, A atoms]."""
        return self.encoder.forward_branch(0, obs) if self.module is None else self.module(self.unmasked(obs))[0]

    def outputs(self, obs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The features [N, F] and the largest Q-values [N]."""
        features = self.features(obs)
        return features, self.masked(obs, self.expected(self.stream_outputs(features))).amax(-1), {}

    def stream_outputs(self, features: Tensor) -> Tensor:
        """The features [N, F] of encoder or memory -> logits."""
        if self.module is not None:
            return self._by_action(features)
        return self.dueling(self.advantage(features), None if self.value is None else self.value(features))

    def dueling(self, advantages: Tensor, values: Tensor | None) -> Tensor:
        """The outputs of the streams, [N, A atoms] and [N, atoms] or None, -> logits."""
        advantages = self._by_action(advantages)
        if values is None:
            return advantages
        values = values if self.num_atoms == 1 else values.unsqueeze(1)
        return advantages + (values - advantages.mean(1, keepdim=True))

    def _by_action(self, outputs: Tensor) -> Tensor:
        return outputs if self.num_atoms == 1 else outputs.view(-1, self.actions, self.num_atoms)

    def q_values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, A]."""
        return self.masked(obs, self.expected(self(obs)))

    def expected(self, logits: Tensor) -> Tensor:
        """[..., atoms] -> the means of the return distributions [...]; with one atom the values themselves."""
        return logits if self.num_atoms == 1 else torch.softmax(logits, -1) @ self.atoms

    def state_values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N], the values of acting greedily."""
        return self.q_values(obs).amax(-1)

    def acted_values(self, rollout: Rollout) -> tuple[Array, Array]:
        """[T, B] each: the Q-values of the actions taken and the largest ones, as they were when it acted."""
        values = rollout.extras["action_dist_inputs"]
        return np.take_along_axis(values, rollout.actions[..., None], -1)[..., 0], values.max(-1)

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> Q-values [N, A], as logits of a Categorical."""
        return self.q_values(obs)

    def act(
        self, obs: Array, state: RecurrentState, generator: np.random.Generator | None = None
    ) -> tuple[ActionDistribution, RecurrentState]:
        """By the mean weights without a `generator`; with it noisy layers have the same weights for all rows."""
        if generator is None or not self.noisy:
            return super().act(obs, state)
        self.draw_noise(torch.Generator().manual_seed(int(generator.integers(2**63))))
        acting = super().act(obs, state)
        self.draw_noise(None)
        return acting

    def draw_noise(self, generator: torch.Generator | None) -> None:
        """Draw new noise for all noisy layers, or put it to zero when `generator` is None."""
        for module in self.modules() if self.noisy else ():
            if isinstance(module, NoisyLinear):
                module.draw(generator) if generator else module.still()


class RecurrentQPolicy(QPolicy, EncoderWithMemory):
    """A `QPolicy` with a memory between encoder and streams; in training it reads sequences."""

    def stream_inputs(self, config: AlgorithmConfig) -> int:
        """The memory's features."""
        return self.add_memory(config.model)

    def logits(self, columns: Mapping[str, Tensor], *, acting: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        """The columns of `unroll` -> logits [S, L, A] or [S, L, A, atoms], and the state after the last step."""
        remembered, state = self.remember(columns, acting=acting)
        logits = self.stream_outputs(remembered.flatten(0, 1))
        return logits.view(*remembered.shape[:2], *logits.shape[1:]), state

    def outputs(self, obs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """One step: the memory's features [N, F], the largest Q-values [N], and the next state."""
        remembered, after = self.remember(one_step(obs, state), acting=True)
        features = remembered[:, 0]
        previous = {name: state[name] for name in PREVIOUS if name in state}
        values = self.masked(obs, self.expected(self.stream_outputs(features)))
        return features, values.amax(-1), after | previous

    def unroll(self, columns: Mapping[str, Tensor], *, acting: bool = False) -> Unrolled:
        """Q-values [S, L, A] and the largest of them [S, L]."""
        logits, state = self.logits(columns, acting=acting)
        values = self.masked(columns["obs"], self.expected(logits))
        return Unrolled(values, values.amax(-1), state)

    def forward(self, *columns: Tensor) -> Tensor:  # type: ignore[override]
        """The columns of `inputs` -> logits [N, A] or [N, A, atoms] of the valid steps."""
        named = dict(zip(self.inputs, columns, strict=True))
        return self.logits(named)[0].flatten(0, 1)[named[VALID]]

    def q_values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, A], for the first step of an episode."""
        return RecurrentPolicy.dist_inputs(self, obs)
