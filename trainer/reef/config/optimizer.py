"""The optimizer's settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from reef.config.declaration import setting
from reef.config.settings import Settings

ADAM, RMSPROP, SGD = ("Adam", "AdamW"), ("RMSprop", "RMSpropTF"), ("SGD",)
TAKEN_BY: dict[str, tuple[str, ...]] = {
    "betas": ADAM,
    "amsgrad": ADAM,
    "eps": (*ADAM, *RMSPROP),
    "alpha": RMSPROP,
    "centered": RMSPROP,
    "momentum": (*RMSPROP, *SGD),
    "dampening": SGD,
    "nesterov": SGD,
    "weight_decay": (*ADAM, *RMSPROP, *SGD),
}


class OptimizerConfig(Settings):
    """Which optimizer moves the parameters, with torch's names and defaults."""

    label: ClassVar[str] = "optimizer"
    prefix: ClassVar[str] = "optimizer."

    type: str = setting("Adam", "RMSpropTF is RMSprop as TensorFlow computes it.", choices=(*ADAM, *RMSPROP, *SGD))
    betas: tuple[float, float] | None = setting(
        None, "Adam, AdamW: decay of the means of gradients and of their squares; null: 0.9 and 0.999.", minimum=0.0
    )
    eps: float | None = setting(None, "Not SGD: keeps the division from infinity; null: 1e-8.", minimum=0.0)
    weight_decay: float | None = setting(None, "Pull of the weights to 0; null: 0, with AdamW 0.01.", minimum=0.0)
    amsgrad: bool | None = setting(None, "Adam, AdamW: divide by the largest mean square so far.")
    alpha: float | None = setting(
        None, "RMSprop, RMSpropTF: decay of the mean of squared gradients; null: 0.99.", minimum=0.0, maximum=1.0
    )
    centered: bool | None = setting(None, "RMSprop, RMSpropTF: divide by the variance instead of the mean square.")
    momentum: float | None = setting(
        None, "RMSprop, RMSpropTF, SGD: share of the last step that is taken again; null: 0.", minimum=0.0, maximum=1.0
    )
    dampening: float | None = setting(None, "SGD: share of a gradient that momentum leaves out; null: 0.", minimum=0.0)
    nesterov: bool | None = setting(None, "SGD: look ahead by the momentum.")

    def arguments(self) -> dict[str, Any]:
        """What was given beside the type."""
        values = {name: getattr(self, name) for name in TAKEN_BY}
        return {name: value for name, value in values.items() if value is not None}

    def problems(self) -> Iterator[str]:
        """Arguments that the type does not take, or not together."""
        yield from super().problems()
        given = self.arguments()
        for name, value in given.items():
            if self.type not in TAKEN_BY[name]:
                own = ", ".join(key for key, kinds in TAKEN_BY.items() if self.type in kinds)
                yield f"optimizer.{name}={value!r}: {self.type} takes {own}. Leave it out, or choose another type."
        if max(given.get("betas", (0.0,))) >= 1.0:
            yield f"optimizer.betas={self.betas}: each must be below 1."
        if given.get("nesterov") and (not given.get("momentum") or given.get("dampening")):
            yield "optimizer.nesterov=True: it needs a momentum above 0, and no dampening."
