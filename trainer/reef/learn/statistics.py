"""Statistics of an update: means by name over its steps and all learners."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from reef.errors import TrainingError
from reef.learn.trained_parameters import Reduce
from reef.types import Stats


def mean_stats(stats: Sequence[dict[str, Tensor]], reduce: Reduce | None) -> Stats:
    """The mean of each reported scalar over all learners and the steps that report it, with one transfer to the CPU.

    Raises TrainingError if learners report different names.
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
    # Coefficients that adapt to a statistic, such as the KL penalty, must be equal on all learners.
    if reduce is not None:
        _check_same_names(names, reduce, sums.device)
        both = torch.stack([sums, counts])
        reduce(both)
        sums, counts = both
    return dict(zip(names, (sums / counts).tolist(), strict=True))


def _check_same_names(names: list[str], reduce: Reduce, device: torch.device) -> None:
    """Raise TrainingError on every learner unless all have the same names: else different quantities are summed."""
    # 20 bits: the sum of their squares over thousands of learners is exact in float64
    code = zlib.crc32("\n".join(names).encode()) & 0xFFFFF
    moments = torch.tensor([code, code * code], dtype=torch.float64, device=device)
    reduce(moments)
    mean, mean_square = moments.tolist()
    if mean * mean != mean_square:  # their variance over the learners is not zero
        raise TrainingError(
            f"the learners report different statistics in one update, this one {names}. With several learners, let "
            "`loss` report the same names for every minibatch."
        )
