from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from reef.errors import TrainingError
from reef.learn.statistics import mean_stats


def scalars(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in values.items()}


def test_statistics_are_means_by_name_over_the_steps_that_report_them() -> None:
    assert mean_stats([scalars(kl=2.0, loss=10.0), scalars(loss=20.0, kl=4.0)], None) == {"kl": 3.0, "loss": 15.0}
    sometimes = [scalars(loss=10.0), scalars(kl=4.0, loss=20.0), scalars(loss=30.0, kl=6.0)]
    assert mean_stats(sometimes, None) == {"kl": 5.0, "loss": 20.0}
    assert mean_stats([], None) == {}


def mean_of_learners(*stats: list[dict[str, torch.Tensor]]) -> list[Any]:
    """What `mean_stats` returns in each of several learners, which are threads here, or the error it raises."""
    meeting, shared = threading.Barrier(len(stats)), [torch.empty(0)] * len(stats)

    def report(rank: int) -> Any:
        def reduce(values: torch.Tensor) -> None:
            shared[rank] = values
            meeting.wait(10.0)
            mean = torch.stack(shared).mean(0)
            meeting.wait(10.0)
            values.copy_(mean)

        try:
            return mean_stats(stats[rank], reduce)
        except TrainingError as error:
            return error

    with ThreadPoolExecutor(len(stats)) as threads:
        return list(threads.map(report, range(len(stats))))


def test_statistics_are_those_of_all_learners() -> None:
    one = [scalars(kl=2.0), scalars(kl=4.0, loss=1.0)]
    other = [scalars(loss=2.0, kl=6.0), scalars(loss=3.0)]
    assert mean_of_learners(one, other) == [{"kl": 4.0, "loss": 2.0}] * 2


def test_learners_that_report_different_statistics_are_told() -> None:
    one, other = mean_of_learners([scalars(kl=2.0, loss=1.0)], [scalars(kl=4.0, entropy=1.0)])
    assert isinstance(one, TrainingError) and "['kl', 'loss']" in str(one)
    assert isinstance(other, TrainingError) and "['entropy', 'kl']" in str(other)


def test_that_many_learners_report_the_same_is_seen_exactly() -> None:
    def reduce(values: torch.Tensor) -> None:
        own = values.clone()
        for _ in range(62):
            values += own
        values /= 63

    for number in range(100):
        assert mean_stats([scalars(**{f"loss_{number}": 2.0})], reduce) == {f"loss_{number}": 2.0}
