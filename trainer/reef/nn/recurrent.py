"""Recurrent policies: an LSTM, a GRU or a gated transformer after the encoder, or a user's own model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from reef.batch import Rollout, Transitions
from reef.config import AlgorithmConfig, ModelConfig
from reef.nn.custom import state_shapes
from reef.nn.distributions import ActionDistribution
from reef.nn.layers.attention import GatedTransformer
from reef.nn.layers.encoders import Encoder, Features
from reef.nn.layers.recurrent import RecurrentCell
from reef.nn.policies import ActorCritic, Policy, linear
from reef.nn.queries.policy import PREV_ACTIONS, PREV_REWARDS
from reef.spaces import Space
from reef.types import Array, RecurrentState

# Names of columns: [S, L] bool, an episode starts with this step; [N] indices of the valid steps among S L.
BEGINS, VALID = "begins", "valid"
PREVIOUS = (PREV_ACTIONS, PREV_REWARDS)
# In the `extras` of a batch: the rewards that a memory read when it acted, where those to learn from may be others.
SAMPLED_REWARDS = "sampled_rewards"
Batch = TypeVar("Batch", Rollout, Transitions)


class Unrolled(NamedTuple):
    """The outputs for sequences."""

    # [S, L, D]
    dist_inputs: Tensor
    # [S, L]
    values: Tensor
    # [S, ...] each, after the last step
    state: dict[str, Tensor]


class RecurrentPolicy(Policy):
    """In training it reads sequences: obs [S, L, *obs], where episodes start, and the state before them."""

    acting_extras = ActorCritic.acting_extras
    # Shapes of the state for one column.
    memory_shapes: Mapping[str, tuple[int, ...]]
    # Number of earlier actions and rewards that it reads with each observation.
    prev_actions = prev_rewards = 0

    @abstractmethod
    def unroll(
        self,
        columns: Mapping[str, Tensor],  # obs [S, L, *obs], the previous [S, L, n, ...], the state [S, ...], BEGINS
        *,
        acting: bool = False,
    ) -> Unrolled:
        """Compute sequences step by step; without BEGINS no episode starts in them."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that `forward` takes."""
        counts = (self.prev_actions, self.prev_rewards)
        read = (name for name, count in zip(PREVIOUS, counts, strict=True) if count)
        return ("obs", BEGINS, VALID, *read, *self.memory_shapes)

    def forward(self, *columns: Tensor) -> tuple[Tensor, Tensor]:
        """The columns of `inputs` -> distribution inputs [N, D] and values [N] of the valid steps."""
        named = dict(zip(self.inputs, columns, strict=True))
        unrolled, valid = self.unroll(named), named[VALID]
        return unrolled.dist_inputs.flatten(0, 1)[valid], unrolled.values.flatten()[valid]

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D], for the first step of an episode."""
        state = {name: torch.from_numpy(v).to(self.device) for name, v in self.initial_state(len(obs)).items()}
        return self.unroll(one_step(obs, state), acting=True).dist_inputs[:, 0]

    def outputs(self, obs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """One step: distribution inputs [N, D], values [N], and the next state with the earlier actions and rewards."""
        unrolled = self.unroll(one_step(obs, state), acting=True)
        previous = {name: state[name] for name in PREVIOUS if name in state}
        return unrolled.dist_inputs[:, 0], unrolled.values[:, 0], unrolled.state | previous

    def initial_state(self, columns: int) -> RecurrentState:
        """Zeros: empty memory, no earlier actions and rewards."""
        state: RecurrentState = {
            name: np.zeros((columns, *shape), np.float32) for name, shape in self.memory_shapes.items()
        }
        action = self.action_layout
        if self.prev_actions:
            state[PREV_ACTIONS] = np.zeros((columns, self.prev_actions, *action.shape), action.action_dtype)
        if self.prev_rewards:
            state[PREV_REWARDS] = np.zeros((columns, self.prev_rewards), np.float32)
        return state

    def act(
        self, obs: Array, state: RecurrentState, generator: np.random.Generator | None = None
    ) -> tuple[ActionDistribution, RecurrentState]:
        """Return action distributions for the observations [N, *obs], and the next state."""
        if self.fast_actor is not None:
            return super().act(obs, state)
        with torch.inference_mode():
            given = {name: torch.as_tensor(values, device=self.device) for name, values in state.items()}
            unrolled = self.unroll(one_step(torch.as_tensor(obs, device=self.device), given), acting=True)
            after = {name: values.cpu().numpy() for name, values in unrolled.state.items()}
            previous = {name: state[name] for name in PREVIOUS if name in state}
            return ActionDistribution(self.dist_class, unrolled.dist_inputs[:, 0].cpu().numpy()), after | previous

    def after_step(self, state: RecurrentState, actions: Array, rewards: Array, done: Array) -> RecurrentState:
        """Store the newest actions and rewards; reset the state where an episode ended."""
        state = {name: values.copy() for name, values in state.items()}
        for name, taken in zip(PREVIOUS, (actions, rewards), strict=True):
            if name in state:
                _push(state[name], taken)
        if done.any():
            for values in state.values():
                values[done] = 0
        return state

    def compile_acting(self, **options: Any) -> None:
        """Compile `unroll`."""
        self.fast_actor = None
        self.unroll = torch.compile(self.unroll, **options)  # type: ignore[method-assign]


class EncoderWithMemory(RecurrentPolicy):
    """An encoder and one memory behind it: an LSTM, a GRU (`use_lstm`) or GTrXL (`use_attention`)."""

    encoder: Encoder

    def add_memory(self, model: ModelConfig) -> int:
        """Put the memory behind `self.encoder`; return the number of its features."""
        if model.use_lstm:
            self.prev_actions, self.prev_rewards = int(model.lstm_use_prev_action), int(model.lstm_use_prev_reward)
        else:
            self.prev_actions = model.attention_use_n_prev_actions
            self.prev_rewards = model.attention_use_n_prev_rewards
        self.action_features = Features(self.action_layout, model) if self.prev_actions else None
        size = self.encoder.out_features + self.prev_rewards
        if self.action_features is not None:
            size += self.prev_actions * self.action_features.out_features
        self.memory = _memory(model, size)
        self.memory_shapes = self.memory.state_shapes
        return self.memory.out_features

    def remember(self, columns: Mapping[str, Tensor], *, acting: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        """The columns of `unroll` -> features [S, L, size], and the state after the last step."""
        obs = columns["obs"]
        features = self.encoder.forward_branch(0, obs.flatten(0, 1))
        parts = [features.view(*obs.shape[:2], -1)]
        if self.action_features is not None:
            actions = columns[PREV_ACTIONS]
            encoded = self.action_features(actions.flatten(0, 2))
            parts.append(encoded.reshape(*obs.shape[:2], -1))
        if self.prev_rewards:
            parts.append(columns[PREV_REWARDS])
        x = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        remembered, state = self.memory(x, columns.get(BEGINS), columns, acting=acting)
        return remembered, state


class RecurrentActorCritic(EncoderWithMemory):
    """An actor and a critic with one encoder and one memory."""

    def __init__(self, config: AlgorithmConfig, observation_space: Space, action_space: Space) -> None:
        """Made from `config.model`."""
        super().__init__(config, observation_space, action_space)
        self.encoder = Encoder(self.input_layout, config.model)
        features = self.add_memory(config.model)
        self.pi = linear(features, self.dist_class.num_inputs, gain=0.01)
        self.vf = linear(features, 1, gain=1.0)

    @property
    def acting_parameters(self) -> list[Tensor]:
        """All but the critic's output layer."""
        return [values.data for name, values in self.named_parameters() if not name.startswith("vf.")]

    def unroll(self, columns: Mapping[str, Tensor], *, acting: bool = False) -> Unrolled:
        """Encoder, memory, and the two output layers."""
        remembered, state = self.remember(columns, acting=acting)
        outputs = self.masked(columns["obs"], self.pi(remembered))
        return Unrolled(outputs, self.vf(remembered).squeeze(-1), state)


class CustomRecurrentActorCritic(RecurrentPolicy):
    """A user's module with a state: (obs [S, L, *obs], begins [S, L] bool, state) -> (outputs, values, state)."""

    def __init__(
        self, config: AlgorithmConfig, observation_space: Space, action_space: Space, module: nn.Module
    ) -> None:
        """`module`: from `custom_module`; its `state_shapes` are the shapes of the state for one column."""
        super().__init__(config, observation_space, action_space)
        self.module, self.memory_shapes = module, state_shapes(module)

    def unroll(self, columns: Mapping[str, Tensor], *, acting: bool = False) -> Unrolled:
        """Call the module with the given state."""
        obs = columns["obs"]
        begins = columns.get(BEGINS)
        if begins is None:
            begins = torch.zeros(obs.shape[:2], dtype=torch.bool, device=obs.device)
        before = {name: columns[name] for name in self.memory_shapes}
        outputs, values, state = self.module(self.unmasked(obs), begins, before)
        return Unrolled(self.masked(obs, outputs), values.reshape(obs.shape[:2]), state)


def _memory(model: ModelConfig, in_features: int) -> RecurrentCell | GatedTransformer:
    if model.use_lstm:
        return RecurrentCell(model.recurrent_cell, in_features, model.lstm_cell_size)
    return GatedTransformer(
        in_features,
        blocks=model.attention_num_transformer_units,
        size=model.attention_dim,
        heads=model.attention_num_heads,
        head_size=model.attention_head_dim,
        acting_reach=model.attention_memory_inference,
        training_reach=model.attention_memory_training,
        mlp=model.attention_position_wise_mlp_dim,
        bias=model.attention_init_gru_gate_bias,
    )


def one_step(obs: Tensor, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sequences of one step that follow the `state`, with the earlier actions and rewards from it."""
    steps = {name: values.unsqueeze(1) if name in PREVIOUS else values for name, values in state.items()}
    return {"obs": obs.unsqueeze(1), **steps}


def _push(before: Array, latest: Array) -> None:
    """Insert the `latest` values [N, ...] at the front of `before` [N, n, ...], dropping the oldest ones."""
    before[:, 1:] = before[:, :-1].copy()
    before[:, 0] = latest


def previous(
    taken: Array,  # [T, B, ...] actions or rewards
    first: Array,  # [B, n, ...] values before step 0
    done: Array,  # [T, B] bool
) -> Array:
    """[T, B, n, ...]: the last n before each step, newest first, zeros before an episode."""
    before, found = first.copy(), np.empty((len(taken), *first.shape), first.dtype)
    for t in range(len(taken)):
        found[t] = before
        _push(before, taken[t])
        before[done[t]] = 0
    return found


def with_sampled_rewards(batch: Batch) -> Batch:
    """The batch with a copy of its rewards, if the policy reads them and they may be changed after this."""
    state = batch.state_in if isinstance(batch, Rollout) else batch.extras
    if PREV_REWARDS not in state or SAMPLED_REWARDS in batch.extras:
        return batch
    return replace(batch, extras=batch.extras | {SAMPLED_REWARDS: batch.rewards.copy()})
