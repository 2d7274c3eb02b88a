"""Every row of a batch is learned from, once a pass, by one learner."""

from __future__ import annotations

import pytest
import torch

from reef.learn.minibatches import in_order, shuffled


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def rows(count: int) -> dict[str, torch.Tensor]:
    return {"row": torch.arange(count), "double": 2 * torch.arange(count)}


def test_each_row_comes_once_a_pass() -> None:
    found = list(shuffled(rows(12), 4, 2, generator()))
    assert [len(each["row"]) for each in found] == [4] * 6
    first, second = (torch.cat([each["row"] for each in part]) for part in (found[:3], found[3:]))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(12))
    assert first.tolist() != second.tolist()
    assert all((each["double"] == 2 * each["row"]).all() for each in found)


def test_without_a_generator_each_pass_keeps_the_order() -> None:
    found = [each["row"].tolist() for each in shuffled(rows(5), 2, 2, None)]
    assert found == [[0, 1], [2, 3]] * 2
    parts = [[each["row"].tolist() for each in shuffled(rows(4), 2, 1, None, rank, 2)] for rank in (0, 1)]
    assert parts == [[[0], [2]], [[1], [3]]]


def test_a_short_rest_is_left_out() -> None:
    assert len(list(shuffled(rows(11), 4, 1, generator()))) == 2
    assert len(list(shuffled(rows(3), 4, 1, generator()))) == 1


@pytest.mark.parametrize("size", [4, 6])
def test_learners_share_a_minibatch(size: int) -> None:
    together = list(shuffled(rows(12), size, 1, generator()))
    parts = [list(shuffled(rows(12), size, 1, generator(), rank, 2)) for rank in (0, 1)]
    for whole, mine, others in zip(together, *parts, strict=True):
        assert torch.cat([mine["row"], others["row"]]).equal(whole["row"])
        assert len(mine["row"]) == len(others["row"])


def test_fewer_rows_than_learners_are_repeated() -> None:
    parts = [list(shuffled(rows(2), 8, 1, generator(), rank, 3)) for rank in range(3)]
    assert [len(part) for part in parts] == [1, 1, 1]
    assert all(len(minibatch["row"]) == 1 for part in parts for minibatch in part)


def test_in_order_keeps_the_order() -> None:
    assert [each["row"].tolist() for each in in_order(rows(5), 2)] == [[0, 1], [2, 3]]
