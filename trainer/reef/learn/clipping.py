"""The three meanings of `grad_clip_by`."""

from __future__ import annotations

from reef.nn.flat import FlatParameters


def clip_gradient(flat: FlatParameters, norm: float, limit: float | None, by: str) -> None:
    """Clip in place: each entry ("value"), each tensor's L2 norm ("norm"), or the total L2 norm ("global_norm").

    `norm` is the L2 norm of the whole gradient, a number; with `limit` None nothing is clipped.
    """
    if limit is None:
        return
    if by == "value":
        flat.gradient.clamp_(-limit, limit)
    elif by == "norm":
        for parameter in flat.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_((limit / (parameter.grad.norm() + 1e-6)).clamp(max=1.0))
    elif norm > limit:
        flat.gradient.mul_(limit / (norm + 1e-6))
