"""Action distributions of a person's own: `model.custom_action_dist`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from reef.config import ModelConfig
from reef.config.loading import load
from reef.errors import ConfigError, own_traceback, sentence
from reef.nn.distributions.distribution import LeafDistribution
from reef.nn.distributions.of_spaces import DistributionMaker, Part
from reef.spaces import Layout, Space
from reef.types import Array


class CustomDistribution(LeafDistribution):
    """The distribution of whole actions, from the network's outputs `self.inputs` [N, D].

    Actions are as in a batch: of a Dict or Tuple space one row of all parts [N, n], in the order of `reef.spaces`, and
    of a Discrete space indices from 0 [N]. `draw` and `mode` get and return NumPy arrays; `logp`, `entropy` and `kl`
    return tensors [N], through which gradients flow.
    """

    @staticmethod
    @abstractmethod
    def required_model_output_shape(action_space: Space, model_config: ModelConfig) -> int:
        """D, the number of outputs of the network."""


class CustomMaker(DistributionMaker):
    """Makes distributions of one class for the whole of an action."""

    def __init__(self, layout: Layout, kind: type[CustomDistribution], num_inputs: int) -> None:
        self.space, self.shape, self.dtype = layout.space, layout.shape, layout.action_dtype
        self.num_inputs = num_inputs
        self.parts = [Part(kind, slice(0, num_inputs), slice(0, layout.size), scalar=False)]
        self.joint = self.reshaped = False
        self.gaussian = slice(0, 0)

    def actions(self, inputs: Array, choose: Callable[[type[LeafDistribution], Array], Array]) -> Array:
        """[N, *action], of the type that they have in batches."""
        chosen = np.asarray(choose(self.parts[0].make, inputs), self.dtype)
        return chosen.reshape(len(inputs), *self.shape)


def custom_maker(model: ModelConfig, layout: Layout) -> CustomMaker:
    """Load `model.custom_action_dist` and try it out; ConfigError says what does not fit these actions."""
    given = model.custom_action_dist
    start = f"model.custom_action_dist={given!r}"
    kind: Any = load(given, what="model.custom_action_dist") if isinstance(given, str) else given
    if not (isinstance(kind, type) and issubclass(kind, CustomDistribution)):
        raise ConfigError(f"{start} must be a subclass of reef.nn.distributions.CustomDistribution.")
    if absent := sorted(kind.__abstractmethods__):
        raise ConfigError(f"{start} has no {', no '.join(absent)}. Define them.")
    try:
        size = kind.required_model_output_shape(layout.space, model)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ConfigError(f"required_model_output_shape returned {size!r}, expected a whole number, 1 or more.")
        maker = CustomMaker(layout, kind, int(size))
        _try(maker, layout)
    except Exception as error:
        own = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
        traceback = "" if isinstance(error, ConfigError) else own_traceback(error)
        raise ConfigError(f"{start} for the actions {layout.space}: {own}{sentence(error)}{traceback}") from error
    return maker


def _try(maker: CustomMaker, layout: Layout) -> None:
    """Raise ConfigError unless two rows have two actions, and a likelihood, an entropy and a divergence each."""
    kind, rows, generator = maker.parts[0].make, 2, np.random.default_rng(0)
    inputs = generator.standard_normal((rows, maker.num_inputs)).astype(np.float32)
    for name, found in (("draw", kind.draw(inputs, generator)), ("mode", kind.mode(inputs))):
        if np.shape(found)[:1] != (rows,) or np.size(found) != rows * layout.size:
            raise ConfigError(f"{name} returned shape {np.shape(found)} for 2 rows, expected {(rows, *layout.shape)}.")
        actions = maker.actions(inputs, lambda _, __, found=found: found)  # type: ignore[misc]
        if wrong := layout.first_impossible(actions):
            raise ConfigError(f"{name} returned the value {wrong[1]}, which may be {wrong[2]}.")
    with torch.inference_mode(False), torch.enable_grad():
        leaf = torch.tensor(inputs, requires_grad=True)
        distribution = maker(leaf)
        of_rows = {
            "logp": distribution.logp(torch.from_numpy(actions)),
            "entropy": distribution.entropy(),
            "kl": distribution.kl(maker(leaf)),
        }
    for name, values in of_rows.items():
        if not isinstance(values, torch.Tensor) or values.shape != (rows,):
            shown = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise ConfigError(f"{name} returned {shown} for 2 rows, expected a tensor of the shape (2,).")
    if not of_rows["logp"].requires_grad:
        raise ConfigError("logp returned a tensor without a gradient: compute it from self.inputs, without detach().")
