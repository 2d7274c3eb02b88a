"""Custom networks: build a user's network, check and test it before training, and act with it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reef.callbacks.hooks import guarded
from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.errors import CallbackError, ConfigError, own_traceback, sentence
from reef.nn.gradients import Columns, Loss, LossFunction
from reef.nn.layers.action_mask import without_mask
from reef.nn.policies import ActorCritic, Policy
from reef.spaces import Layout, Space

# Columns of a train batch; a part of a state must not have one of these names.
RESERVED = {
    *("obs", "actions", "rewards", "mask", "begins", "valid", "share", "prev_actions", "prev_rewards"),
    *("action_logp", "action_dist_inputs", "advantages", "value_targets"),
}


class CustomActor(Policy):
    """A user's module that maps observations to (distribution inputs [N, D], values [N]), which nothing reads."""

    def __init__(
        self, config: AlgorithmConfig, observation_space: Space, action_space: Space, module: nn.Module
    ) -> None:
        """`module`: from `custom_module`."""
        super().__init__(config, observation_space, action_space)
        self.module = module

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D]."""
        outputs: Tensor = self.module(self.unmasked(obs))[0]
        return self.masked(obs, outputs)

    def forward(self, obs: Tensor) -> Any:
        """[N, *obs] -> [N, D]."""
        return self.dist_inputs(obs)


class CustomActorCritic(CustomActor):
    """A user's module that maps observations to (distribution inputs [N, D], values [N])."""

    acting_extras = ActorCritic.acting_extras

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """[N, *obs] -> distribution inputs [N, D] and state values [N]."""
        outputs, values = self.module(self.unmasked(obs))
        return self.masked(obs, outputs), values.reshape(-1)

    def values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N]."""
        return self.forward(obs)[1]

    def outputs(self, obs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Distribution inputs [N, D] and values [N]."""
        return *self.forward(obs), {}


def custom_module(
    config: Any,
    observation_space: Space,
    action_space: Space,
    outputs: int,
    *,
    critic: bool,
    settings: str = "model",
    actions: int = 0,
) -> nn.Module:
    """Build the `custom_model` of the `settings`; raise ConfigError if that fails or the result cannot be trained.

    The outputs are [N, outputs], and with a `critic` also values [N]. The module reads no action mask. With `actions`
    it reads so many numbers of them beside the observations.
    """
    observation_space = without_mask(config.action_mask_key, observation_space)
    custom, arguments = getattr(config, settings).custom_model, getattr(config, settings).custom_model_config
    where = f"{settings}.custom_model={custom!r}"
    make = load(custom, what=f"{settings}.custom_model") if isinstance(custom, str) else custom
    assert make is not None, "called only with a custom model"
    try:
        module = make(observation_space, action_space, outputs, **arguments)
    except Exception as error:
        raise ConfigError(
            f"{where} cannot be made with the two spaces, {outputs} outputs and custom_model_config={arguments}: "
            f"{type(error).__name__}: {sentence(error)}{own_traceback(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{where} must make a torch.nn.Module")
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if buffers := sorted(module.state_dict().keys() - parameters.keys()):
        raise ConfigError(
            f"{where}: the buffers {', '.join(buffers)} would neither reach the workers nor "
            "checkpoints, which hold parameters. Make them parameters (LayerNorm in place of BatchNorm, the setting "
            "observation_filter='MeanStdFilter' in place of own statistics), or, if they are constants, register them "
            "with persistent=False."
        )
    shapes = state_shapes(module)
    if shapes and "custom_model" not in config.possible_memories:
        raise ConfigError(
            f"{where} has state_shapes, but this algorithm has no network with a memory "
            "of your own. Give one without, or use PPO."
        )
    if taken := sorted(RESERVED & shapes.keys()):
        raise ConfigError(f"{where}: state_shapes has {taken}, which are columns. Rename them.")
    _try_custom(where, module, Layout.of(observation_space), outputs, critic, actions)
    return module


def with_custom_loss(policy: Policy, loss: LossFunction) -> LossFunction:
    """`loss`, or what `custom_loss(policy_loss, loss_inputs)` of a custom model makes of it, if it has that method.

    `policy_loss` is a scalar, `loss_inputs` the minibatch; the statistic `policy_loss_before_custom` is the former.
    """
    module = getattr(policy, "module", None)
    change = getattr(module, "custom_loss", None)
    if change is None:
        return loss
    where = f"custom_loss of model.custom_model={type(module).__name__}"

    def changed(outputs: Any, minibatch: Columns) -> Loss:
        found = loss(outputs, minibatch)
        inputs = {**minibatch, "obs": policy.unmasked(minibatch["obs"])}
        value = guarded(where, change, found.value, inputs)
        value = scalar_loss(where, value[0] if isinstance(value, list | tuple) and len(value) == 1 else value)
        return found._replace(value=value, stats=found.stats | {"policy_loss_before_custom": found.value.detach()})

    return changed


def scalar_loss(where: str, value: Any) -> Tensor:
    """What a person's function `where` returned as a loss; CallbackError where that cannot be descended."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise CallbackError(
            f"{where} returned {_shown(value)}, expected a scalar tensor, such as a mean over the rows."
        )
    if not value.requires_grad:
        raise CallbackError(
            f"{where} returned a tensor without a gradient: compute it from the outputs of the model, without "
            "torch.no_grad() and detach() on the way."
        )
    return value.reshape(())


def _try_custom(where: str, module: nn.Module, layout: Layout, outputs: int, critic: bool, actions: int) -> None:
    """Raise ConfigError unless the module maps two observations to two outputs, and two values with a critic.

    A recurrent module gets them as a sequence of two steps, and also returns the state after them. With `actions` it
    also gets two rows of them.
    """
    space = copy.deepcopy(layout.space)
    space.seed(0)
    observations = torch.from_numpy(np.stack([layout.flatten(space.sample()) for _ in range(2)]))
    device = next((parameter.device for parameter in module.parameters()), None)
    shapes = state_shapes(module)
    state = {name: torch.zeros(1, *shape, device=device) for name, shape in shapes.items()}
    arguments: tuple[Any, ...] = (observations.to(device),)
    if shapes:
        arguments = observations[None].to(device), torch.zeros(1, 2, dtype=torch.bool, device=device), state
    taken = torch.zeros(2, actions, device=device, requires_grad=True)
    if actions:
        arguments = *arguments, taken
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            found = module(*arguments)
    except Exception as error:
        raise ConfigError(
            f"{where} fails on observations of shape {list(arguments[0].shape)} and type {observations.dtype}"
            f"{f' with actions of shape [2, {actions}]' if actions else ''}: "
            f"{type(error).__name__}: {sentence(error)}{own_traceback(error)}"
        ) from error
    parts = _parts(where, found, outputs, critic, shapes)
    if shapes and (after_shapes := _shapes(parts[2])) != _shapes(state):
        raise ConfigError(f"{where} returns a state of the shapes {after_shapes}, expected {_shapes(state)}.")
    if torch.is_inference_mode_enabled():
        return
    if not any(each.requires_grad for each in parts[: 2 if critic else 1]):
        raise ConfigError(
            f"{where}: no gradient flows from its outputs to parameters, so nothing would be "
            "learnt. Give it parameters, without torch.no_grad(), detach() and requires_grad_(False) on the way."
        )
    if actions and torch.autograd.grad(parts[0].sum(), taken, allow_unused=True)[0] is None:
        raise ConfigError(f"{where}: its outputs do not depend on the actions, so the actor would learn nothing.")


def _parts(where: str, found: Any, outputs: int, critic: bool, shapes: dict[str, Any]) -> Any:
    """What the module returned for two observations: outputs, values, and the state if it has one of these `shapes`."""
    count = 3 if shapes else 2
    parts: Any = found if isinstance(found, tuple | list) and len(found) == count else (None,) * count
    sizes = [2 * outputs, 2] if critic else [2 * outputs]
    rows = 1 if shapes else 2
    for each, size in zip(parts, sizes, strict=False):
        wrong_shape = not isinstance(each, Tensor) or len(each) != rows or each.numel() != size
        if wrong_shape or (shapes and each.shape[:2] != (1, 2)):
            before = "[1, 2" if shapes else "[2"
            values = f"values of shape {before}]" if critic else "anything"
            after = ", state" if shapes else ""
            raise ConfigError(
                f"{where} returns {_shown(found)} for 2 observations, expected (outputs of shape "
                f"{before}, {outputs}], {values}{after})."
            )
    return parts


def state_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shapes of a recurrent module's state for one column, by name; empty for other modules."""
    return {name: tuple(shape) for name, shape in getattr(module, "state_shapes", {}).items()}


def _shapes(state: Any) -> dict[str, list[int]] | str:
    return {name: list(values.shape) for name, values in state.items()} if isinstance(state, dict) else _shown(state)


def _shown(found: Any) -> str:
    if isinstance(found, tuple | list):
        return f"({', '.join(map(_shown, found))})"
    return f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
