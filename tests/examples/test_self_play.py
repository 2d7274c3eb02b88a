"""The program examples/self_play.py, in a short form: main beats its past, which grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reef.run.algorithm import Algorithm


@pytest.fixture(scope="module")
def names(example: Any) -> dict[str, Any]:
    found: dict[str, Any] = example("self_play")
    return found


def test_main_wins_against_its_past_which_grows(names: dict[str, Any]) -> None:
    results = names["train"](names["settings"](), 10)
    opponents = [result["custom_metrics"]["opponents"] for result in results]
    won = [result["custom_metrics"]["won"] for result in results]
    assert opponents[0] == 1
    assert won[0] < names["ENOUGH"] < max(won), "it learns to win against what it was"
    assert opponents[-1] >= 2
    assert all(result["info"]["learner"].keys() == {"main"} for result in results)
    assert set(results[-1]["policy_reward_mean"]) >= {"main", "past_0", "past_1"}


def test_a_full_league_lets_the_oldest_go_and_goes_on_after_a_restart(names: dict[str, Any], tmp_path: Path) -> None:
    config = names["settings"]().training(train_batch_size=400, sgd_minibatch_size=200, num_sgd_iter=1)
    names["SelfPlay"].on_train_result.__globals__.update(ENOUGH=-1.0, LEAGUE=2)  # each iteration is enough
    with config.build() as algorithm:
        for _ in range(4):
            algorithm.train()
        assert list(algorithm.config.policies) == ["main", "past_3", "past_4"]
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        with config.build() as again:
            again.restore(checkpoint)
            assert list(again.config.policies) == ["main", "past_3", "past_4"]
            for name in ("main", "past_3"):
                weights = (each.get_policy(name).flat.numpy() for each in (algorithm, again))
                np.testing.assert_array_equal(*weights)
            assert isinstance(again, Algorithm)
            again.train()


@pytest.mark.parametrize(
    ("columns", "winner"),
    [
        ([0, 1, 0, 1, 0, 1, 0], 0),  # upwards
        ([6, 0, 5, 0, 4, 1, 3], 0),  # along a row
        ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], 0),  # diagonally
        ([0, 0, 0, 0, 0, 0, 0], 1),  # a stone in a full column
        ([3, 2, 2, 1, 1, 0, 1, 0, 0, 6, 0], 0),  # the other diagonal
    ],
)
def test_the_game_ends_when_it_is_won(names: dict[str, Any], columns: list[int], winner: int) -> None:
    game = names["ConnectFour"]({})
    obs, _ = game.reset()
    for move, column in enumerate(columns):
        assert obs.keys() == {move % 2}
        obs, rewards, terminated, _, _ = game.step({move % 2: column})
        assert bool(terminated) is (move == len(columns) - 1)
    assert rewards == {winner: 1.0, 1 - winner: -1.0}


def test_a_full_board_is_a_draw(names: dict[str, Any]) -> None:
    game = names["ConnectFour"]({})
    game.reset()
    order = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 2, 3, 2, 3, 3, 2, 3, 2, 2, 3, 2, 3, 4, 5, 4, 5, 5, 4, 5, 4, 4, 5, 4, 5]
    for move, column in enumerate([*order, 6, 6, 6, 6, 6, 6]):
        _, rewards, terminated, _, _ = game.step({move % 2: column})
    assert terminated == {"__all__": True}
    assert rewards == {}
