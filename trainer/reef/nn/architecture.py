"""What identifies a network: its weights fit no network with another architecture."""

from __future__ import annotations

from typing import Any, TypedDict

from torch import nn

from reef.nn.layers.activations import ACTIVATIONS, Activation

NAMES = {activation: name for name, activation in reversed(ACTIVATIONS.items())}


class Architecture(TypedDict):
    """A network, as JSON data."""

    shapes: dict[str, list[int]]  # of its parameters
    parts: dict[str, Any]  # what else affects its output
    settings: dict[str, Any]  # the settings that it was made with, for error messages; some have no effect


def architecture_of(network: nn.Module, settings: dict[str, Any], **parts: Any) -> Architecture:
    """The architecture of a network made with these settings; `parts`: what its shapes and layers do not show."""
    for name, module in network.named_modules():
        activation = getattr(module, "activation", None)
        hidden = getattr(module, "layers", getattr(module, "hidden", True))
        if isinstance(activation, Activation) and hidden:
            parts[f"{name}.activation"] = NAMES[activation]
        if isinstance(module, nn.Conv2d):
            parts[f"{name}.stride"] = list(module.stride)
    shapes = {name: list(parameter.shape) for name, parameter in network.named_parameters()}
    return {"shapes": shapes, "parts": parts, "settings": settings}


def another_network(stored: Architecture, own: Architecture) -> str:
    """Return how a checkpoint's network differs from this one and what to do; empty if they are equal."""
    there, here = ({**each["shapes"], **each["parts"]} for each in (stored, own))
    # older checkpoints do not say which mask they have
    there.setdefault("action_mask_key", here.get("action_mask_key"))
    if there == here:
        return ""
    name = next(name for name in [*there, *here] if there.get(name) != here.get(name))
    differs = f"in its network {name} is {there.get(name, 'not there')}, in this one {here.get(name, 'not there')}"
    before, now = stored["settings"], own["settings"]
    changed = [key for key in before if now.get(key, before[key]) != before[key]]
    if changed:
        made, other = (", ".join(f"{key}={each[key]!r}" for key in changed) for each in (before, now))
        return f"{differs}. It was made with {made}, and this one with {other}. Set the former"
    return f"{differs}. Give one with the same observation and action space, and the same custom model"
