"""A network as a table: its layers with the shapes of their parameters and the number of weights."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

HEADER = ("Layer (type)", "Parameters", "Param #")


def summary(network: nn.Module, inputs: str = "") -> str:
    """The table of `network`; `inputs`: a name and shape for its first line."""
    rows = [(inputs, "", "0")] if inputs else []
    rows += [*_rows(network)]
    widths = [max(len(row[column]) for row in [HEADER, *rows]) for column in range(3)]
    lines = [
        f"{name:{widths[0]}}  {shapes:{widths[1]}}  {count:>{widths[2]}}" for name, shapes, count in [HEADER, *rows]
    ]
    counts = {parameter: parameter.numel() for parameter in network.parameters()}  # of each once, also if it is shared
    trainable = sum(count for parameter, count in counts.items() if parameter.requires_grad)
    total = sum(counts.values())
    rule = "=" * len(lines[0])
    totals = {"Total": total, "Trainable": trainable, "Non-trainable": total - trainable}
    return "\n".join([lines[0], rule, *lines[1:], rule, *(f"{name} params: {n:,}" for name, n in totals.items())])


def _rows(network: nn.Module) -> Iterator[tuple[str, str, str]]:
    """A row for each module that has parameters itself."""
    for name, module in network.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if module is network:
            for key, parameter in own.items():
                yield f"{key} (Parameter)", str(list(parameter.shape)), f"{parameter.numel():,}"
        elif own:
            shapes = ", ".join(str(list(parameter.shape)) for parameter in own.values())
            count = sum(parameter.numel() for parameter in own.values())
            yield f"{name} ({type(module).__name__})", shapes, f"{count:,}"
