"""Batches that RLlib wrote: reef.offline.rllib_files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.errors import ConfigError
from reef.offline.episodes import EpisodeReader
from reef.offline.rllib_files import episodes_of
from reef.spaces import Layout

BATCH = {
    "type": "SampleBatch",
    "eps_id": [7, 7, 8, 8, 8],
    "t": [0, 1, 0, 1, 2],
    "obs": [[0.0], [0.1], [0.2], [0.3], [0.4]],
    "new_obs": [[0.1], [0.9], [0.3], [0.4], [0.5]],
    "actions": [0, 1, 1, 0, 1],
    "rewards": [1.0, 2.0, 3.0, 4.0, 5.0],
    "terminateds": [False, True, False, False, False],
    "truncateds": [False] * 5,
    "infos": [{}] * 5,
}


def batch(without: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    return {key: value for key, value in (BATCH | changed).items() if key not in without}


def several(policies: Any) -> dict[str, Any]:
    return {"type": "MultiAgentBatch", "count": 5, "policy_batches": policies}


def test_rows_of_one_episode_are_its_steps() -> None:
    first, second = episodes_of(batch())
    assert first[1] == {
        "obs": [0.1], "action": 1, "next_obs": [0.9], "reward": 2.0, "terminated": True, "truncated": False, "t": 1
    }  # fmt: skip
    assert [step["reward"] for step in second] == [3.0, 4.0, 5.0]


def test_older_batches_have_dones_and_no_ids() -> None:
    old = batch(("terminateds", "truncateds", "eps_id"), dones=[False, True, False, False, True])
    assert [[step["terminated"] for step in steps] for steps in episodes_of(old)] == [
        [False, True],
        [False, False, True],
    ]


def test_without_next_observations_a_last_step_that_goes_on_is_left_out() -> None:
    first, second = episodes_of(batch(("new_obs",)))
    assert [step["next_obs"] for step in first] == [[0.1], [0.1]], "what follows a terminated step is not used"
    assert [step["next_obs"] for step in second] == [[0.3], [0.4]]


def test_a_batch_of_one_policy_is_read_and_one_of_several_is_not() -> None:
    assert len(list(episodes_of(several({"main": batch()})))) == 2
    with pytest.raises(ValueError, match=r"the policies \['main', 'other'\] acted"):
        list(episodes_of(several({"main": batch(), "other": batch()})))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (batch(obs="BCJNGEhA2nc="), "obs is packed as a pickle, which is not read.*output_compress_columns=\\[\\]"),
        (batch(("rewards",)), "it has no column 'rewards'"),
        (batch(("terminateds",)), "it has no column 'terminateds'. Did you mean 'truncateds'?"),
        (batch(rewards=[1.0]), "new_obs has 5 rows, and rewards has 1|obs has 5 rows"),
        (batch(actions=3), "actions is int, expected a list"),
        (batch(truncateds="BCJN"), "truncateds is packed"),
        (several([1]), "policy_batches is list, expected a batch by policy"),
        (several(3), "policy_batches is int, expected"),
        (several(None), "policy_batches is NoneType, expected"),
        (several({}), r"the policies \[\] acted"),
        (several({"p": 3}), "the batch of the policy 'p' is int, expected columns by name"),
    ],
)
def test_what_is_wrong_with_a_batch_is_said(wrong: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "output.json"
    file.write_text(json.dumps(wrong))
    with pytest.raises(ConfigError, match=f"no episode can be read.*line 1: ({said})"):
        list(reader().read([file]))


def reader() -> EpisodeReader:
    actions = Layout.of(spaces.Discrete(2))
    transform = ActionTransform(actions, normalize=True, clip=False)
    return EpisodeReader(Layout.of(spaces.Box(0.0, 1.0, (1,))), actions, transform, RewardTransform(None, atari=False))


def test_a_row_that_nothing_follows_is_no_episode_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = {key: value[:1] for key, value in batch(("type", "new_obs")).items()}
    file = tmp_path / "output.json"
    file.write_text(json.dumps({"type": "SampleBatch", **columns}))
    with pytest.raises(ConfigError, match="line 1: its last step has no successor"):
        list(reader().read([file]))
    file.write_text(json.dumps(batch(("new_obs",), eps_id=[7, 7, 8, 8, 9])))
    assert [len(episode.rewards) for episode in reader().read([file])] == [2, 1]
    assert f"left out of the recorded episodes: {file}, line 1: its last step has no successor" in caplog.text


def test_a_file_may_hold_batches_beside_episodes(tmp_path: Path) -> None:
    file = tmp_path / "output.json"
    step = {"obs": [0.0], "action": 1, "next_obs": [0.5], "reward": 9.0, "terminated": True, "truncated": False}
    file.write_text("\n".join(map(json.dumps, [batch(), {"steps": [step]}])))
    episodes = list(reader().read([file]))
    assert [episode.rewards[:, 0].tolist() for episode in episodes] == [[1, 2], [3, 4, 5], [9]]
    assert episodes[1].truncated[:, 0].tolist() == [False, False, True], "the batch ended before the episode"
    np.testing.assert_array_equal(episodes[0].next_obs[:, 0], np.array([[0.1], [0.9]], np.float32))
