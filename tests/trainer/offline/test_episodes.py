"""Episodes that `reef evaluate --out` wrote are read back as the steps that were played.

It tests reef.offline.recorded too.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from pyarrow import parquet

from reef.algorithms.ppo import PPOConfig
from reef.batch import Rollout
from reef.cli.main import main
from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.errors import ConfigError
from reef.offline.episodes import EpisodeReader
from reef.offline.recorded import RecordedSource, RecordedSteps
from reef.spaces import Layout

OBS, ACTIONS = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3, start=1)


def step(**changed: Any) -> dict[str, Any]:
    whole = {"obs": [0, 0.5], "action": 1, "next_obs": [1, 1], "reward": 2, "terminated": False, "truncated": False}
    return whole | changed


def reader(
    observed: spaces.Space[Any] = OBS,
    acted: spaces.Space[Any] = ACTIONS,
    *,
    normalized: bool = False,
    chosen: bool = False,
) -> EpisodeReader:
    actions = Layout.of(acted)
    transform = None if normalized else ActionTransform(actions, normalize=True, clip=False)
    return EpisodeReader(Layout.of(observed), actions, transform, RewardTransform(None, atari=False), chosen=chosen)


def written(folder: Path, *lines: Any) -> list[Path]:
    path = folder / "episodes.json"
    path.write_text("".join(line if isinstance(line, str) else json.dumps({"steps": line}) + "\n" for line in lines))
    return [path]


def source(episodes: list[Rollout], weight: float = 1.0) -> RecordedSource:
    return RecordedSource(lambda: iter(episodes), weight)


def test_an_episode_is_read_as_it_was_played(tmp_path: Path) -> None:
    steps = [step(action=3), step(obs=[1, 1], next_obs=[0, 0], terminated=True)]
    (episode,) = reader().read(written(tmp_path, steps))
    assert episode.shape == (2, 1)
    np.testing.assert_array_equal(episode.obs[:, 0], np.array([[0, 0.5], [1, 1]], np.float32))
    np.testing.assert_array_equal(episode.actions[:, 0], [2, 0])  # indices
    np.testing.assert_array_equal(episode.terminated[:, 0], [False, True])
    assert not episode.truncated.any()
    assert episode.obs.dtype == episode.rewards.dtype == np.float32
    assert episode.actions.dtype == np.int64


def test_the_last_step_of_a_recording_that_was_cut_is_truncated(tmp_path: Path) -> None:
    (episode,) = reader().read(written(tmp_path, [step(), step()]))
    assert episode.truncated[:, 0].tolist() == [False, True]


@pytest.mark.parametrize("normalized", [False, True])
def test_actions_are_those_that_the_policy_chose(normalized: bool, tmp_path: Path) -> None:
    acted = spaces.Box(0.0, 4.0, (1,))
    (episode,) = reader(acted=acted, normalized=normalized).read(written(tmp_path, [step(action=[1.0])]))
    assert episode.actions[0, 0].tolist() == [1.0 if normalized else -0.5]


REAL = spaces.Box(0.0, 4.0, (2,))


def test_actions_before_they_were_clipped_are_read_for_estimates(tmp_path: Path) -> None:
    files = written(tmp_path, [step(action=[4.0, 1.0], policy_action=[1.5, -0.5])])
    assert next(reader(acted=REAL, chosen=True).read(files)).actions[0, 0].tolist() == [1.5, -0.5]
    assert next(reader(acted=REAL).read(files)).actions[0, 0].tolist() == [1.0, -0.5]
    # the user says that the action is what the policy chose
    assert next(reader(acted=REAL, chosen=True, normalized=True).read(files)).actions[0, 0].tolist() == [4.0, 1.0]


@pytest.mark.parametrize(
    ("policy_action", "reason"),
    [
        ([None, -0.5], "policy_action holds a number that is not finite"),
        ([0.5, -0.5, 1], "line 1: cannot reshape"),
        (["a", 1], "line 1: "),
        # as the environment got it, not as the policy chose it
        ([4.0, 1.0], r"step 1 has the policy_action \[4.0, 1.0\], which is \[4.0, 4.0\] within .* action \[4.0, 1.0\]"),
    ],
)
def test_chosen_actions_that_are_not_of_the_action_are_left_out(
    policy_action: Any, reason: str, tmp_path: Path
) -> None:
    files = written(tmp_path, [step(action=[4.0, 1.0], policy_action=policy_action)])
    with pytest.raises(ConfigError, match=reason):
        list(reader(acted=REAL, chosen=True).read(files))
    assert len(list(reader(acted=REAL).read(files))) == 1, "to learn from, it is not read"


def test_a_likelihood_is_checked_where_it_is_read(tmp_path: Path) -> None:
    files = written(tmp_path, [step(action_logp=float("-inf"))])
    with pytest.raises(ConfigError, match="the likelihood of an action is 0 or no finite number"):
        list(reader(chosen=True).read(files))
    assert len(list(reader().read(files))) == 1


def test_dicts_and_tuples_are_flattened(tmp_path: Path) -> None:
    observed = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple([OBS, spaces.MultiBinary(2)])})
    value = {"a": 2, "b": [[0.5, 0.25], [0, 1]]}
    (episode,) = reader(observed).read(written(tmp_path, [step(obs=value, next_obs=value)]))
    assert episode.obs[0, 0].tolist() == [2, 0.5, 0.25, 0, 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"steps": [{"obs": [0, ', "line 1: it is no JSON, perhaps cut off"),
        ("[]\n", "line 1: "),
        ('{"reward": 3}\n', "line 1: 'steps' is missing"),
        ([], "line 1: it has no steps"),
        ([{"obs": [0, 0]}], "line 1: 'action' is missing"),
        ([step(obs=[1, 2, 3])], r"an observation has the shape \(3,\), expected \(2,\)"),
        ([step(obs=["a", 2])], "line 1: "),
        ([step(next_obs=[None, 2])], "line 1: "),
        ([step(obs=[float("nan"), 2])], "an observation holds a number that is not finite"),
        ([step(reward=float("inf"))], "a reward is no finite number"),
        ([step(action=4)], "an action has 4, expected 1 to 3"),
        ([step(action=[1, 2])], "line 1: "),
    ],
)
def test_a_line_that_is_no_episode_is_left_out_and_named(
    line: Any, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=rf"no episode can be read from .*episodes.json\. .*{reason}"):
        list(reader().read(written(tmp_path, line)))
    with caplog.at_level(logging.WARNING):
        assert len(list(reader().read(written(tmp_path, line, "\n" if isinstance(line, str) else "", [step()])))) == 1
    assert "left out of the recorded episodes" in caplog.text


BYTES = spaces.Box(0, 255, (1,), np.uint8)


@pytest.mark.parametrize(
    ("space", "right", "wrong", "reason"),
    [
        (OBS, [1, 2], [float("inf"), 2], "holds a number that is not finite"),
        (OBS, [1, 2], [1e39, 2], "holds a number that is not finite"),
        (spaces.Discrete(3), 2, 3, "has 3, expected 0 to 2"),
        (spaces.Discrete(3), 2, 1.5, "has 1.5, expected a value of int64"),
        (spaces.Discrete(3, start=1), 3, 0, "has 0, expected 1 to 3"),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [0, 3], "has 3, expected 0 to 2"),
        (spaces.Tuple([spaces.Discrete(3), OBS]), [2, [0, 0]], [3, [0, 0]], "has 3, expected 0 to 2"),
        (BYTES, [255], [300], "has 300, expected a value of uint8"),
        (BYTES, [255], [-1], "has -1, expected a value of uint8"),
        (BYTES, [255], [10**30], "line 1: "),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_left_out(
    space: spaces.Space[Any], right: Any, wrong: Any, reason: str, tmp_path: Path
) -> None:
    good = step(obs=right, next_obs=right)
    assert len(list(reader(space).read(written(tmp_path, [good])))) == 1
    for key in ("obs", "next_obs"):
        with pytest.raises(ConfigError, match=reason):
            list(reader(space).read(written(tmp_path, [good | {key: wrong}])))


@pytest.mark.parametrize(
    ("space", "right", "wrong", "reason"),
    [
        (OBS, [1, 2], [float("nan"), 2], "an action holds a number that is not finite"),
        (BYTES, [255], [float("nan")], "an action holds a number that is not finite"),
        (spaces.Discrete(3), 2, 1.5, "an action has 1.5, expected a value of int64"),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [0, 3], "an action has 3, expected 0 to 2"),
        (spaces.Tuple([spaces.Discrete(3), OBS]), [2, [0, 0]], [2, [float("inf"), 0]], "holds a number that is not"),
    ],
)
def test_an_action_that_is_not_of_its_space_is_left_out(
    space: spaces.Space[Any], right: Any, wrong: Any, reason: str, tmp_path: Path
) -> None:
    assert len(list(reader(acted=space).read(written(tmp_path, [step(action=right)])))) == 1
    with pytest.raises(ConfigError, match=reason):
        list(reader(acted=space).read(written(tmp_path, [step(action=wrong)])))


def test_actions_of_whole_numbers_are_real_ones_as_the_policy_chose_them(tmp_path: Path) -> None:
    (episode,) = reader(acted=BYTES, normalized=True).read(written(tmp_path, [step(action=[0.25])]))
    assert episode.actions[0, 0].tolist() == [0.25]


def test_many_wrong_lines_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    list(reader().read(written(tmp_path, *["x\n"] * 9, [step()])))
    assert ": 6 more" in caplog.text


def test_empty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Every file is empty"):
        list(reader().read(written(tmp_path, "\n\n")))


def episode(rewards: list[float], *, terminated: bool) -> Rollout:
    count = len(rewards)
    ends = np.arange(count)[:, None] == count - 1
    obs = np.arange(count + 1, dtype=np.float32)[:, None, None]
    return Rollout(
        obs=obs[:-1],
        actions=np.zeros((count, 1), np.int64),
        rewards=np.array(rewards, np.float32)[:, None],
        next_obs=obs[1:],
        terminated=ends & terminated,
        truncated=ends & (not terminated),
        mask=np.ones((count, 1), np.bool_),
    )


def test_returns_reach_to_the_end_of_their_own_episode() -> None:
    episodes = [episode([1, 2, 4], terminated=True), episode([8.0], terminated=False)]
    recorded = RecordedSteps([source(episodes)], gamma=0.5, n_step=None, seed=0)
    assert len(recorded) == 4
    steps = recorded.buffer.take(np.arange(4))
    np.testing.assert_allclose(steps.rewards, [1 + 1 + 1, 2 + 2, 4, 8])
    np.testing.assert_allclose(steps.extras["discounts"], [0.125, 0.25, 0.5, 0.5])
    assert steps.next_obs[:, 0].tolist() == [3, 3, 3, 1]
    assert steps.terminated.tolist() == [True, True, True, False]
    assert steps.truncated.tolist() == [False, False, False, True]


def test_draws_go_on_where_they_were() -> None:
    made = [
        RecordedSteps([source([episode([1.0] * 50, terminated=True)])], gamma=1.0, n_step=1, seed=3) for _ in range(2)
    ]
    made[0].sample(7)
    made[1].set_state(made[0].state())
    np.testing.assert_array_equal(made[0].sample(20).obs, made[1].sample(20).obs)


def test_steps_of_several_sources_are_drawn_by_their_weights() -> None:
    many, few = [episode([0.0] * 90, terminated=True)], [episode([1.0] * 10, terminated=True)]
    recorded = RecordedSteps([source(many), source(few, 3.0)], gamma=1.0, n_step=1, seed=0)
    drawn = recorded.sample(4000)
    assert drawn.rewards.mean() == pytest.approx(0.75, abs=0.03)
    of_few = drawn.obs[drawn.rewards == 1][:, 0]
    assert set(of_few.tolist()) == set(range(10)), "every step of a source is drawn"


def test_what_evaluate_writes_is_read(tmp_path: Path) -> None:
    with PPOConfig().environment("Pendulum-v1").training(train_batch_size=64, sgd_minibatch_size=32).build() as trained:
        checkpoint = trained.save(tmp_path / "checkpoint")
        policy = trained.get_policy()
    out = tmp_path / "out.json"
    assert main(["evaluate", checkpoint, "--episodes", "2", "--out", str(out)]) == 0
    episodes = list(reader(policy.observation_layout.space, policy.action_layout.space).read([out]))
    assert [found.shape for found in episodes] == [(200, 1), (200, 1)]
    for found in episodes:
        np.testing.assert_array_equal(found.obs[1:], found.next_obs[:-1])
        mean = policy.act(found.obs[:, 0], {})[0].inputs[:, :1]
        np.testing.assert_allclose(np.clip(mean, -1, 1), found.actions[:, 0], atol=1e-5)


def several(folder: Path, **changed: list[Any]) -> list[Path]:
    """A file of three episodes of two steps, with other columns."""
    columns = {key: [value] * 6 for key, value in step().items()} | {"episode": [1, 1, 2, 2, 3, 3]}
    columns |= {"reward": [float(row) for row in range(6)], "terminated": [False, True] * 3}
    parquet.write_table(pa.table(columns | changed), folder / "a.parquet")
    return [folder / "a.parquet"]


def rewards(episodes: list[Rollout]) -> list[list[float]]:
    return [episode.rewards[:, 0].tolist() for episode in episodes]


def test_episodes_that_are_read_together_are_checked_together(tmp_path: Path) -> None:
    files = several(tmp_path, terminated=[False, True, False, False, False, True])
    found, last = reader().read(files)
    assert rewards([found, last]) == [[0, 1, 2, 3], [4, 5]], "the last one may go on in the next part of a file"
    assert found.terminated[:, 0].tolist() == [False, True, False, False]
    assert found.truncated[:, 0].tolist() == [False, False, False, True], "cut off"
    assert rewards(list(reader(chosen=True).read(files))) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"reward": [0.0, 1, float("nan"), 3, 4, 5]}, "episode 2: a reward is no finite number"),
        ({"terminated": [False, True, True, True, False, True]}, "episode 2: step 1 of 2 ended the episode"),
        ({"truncated": [False, False, True, False, False, False]}, "episode 2: step 1 of 2 ended the episode"),
        ({"t": [0, 1, 7, 7, 0, 1]}, "episode 2: its steps are out of order: t does not grow"),
        ({"t": [0, None, 7, 7, 0, 1]}, "episode 2: its steps are out of order: t does not grow"),
    ],
)
def test_one_that_is_wrong_leaves_the_others(
    changed: dict[str, Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = rewards(list(reader().read(several(tmp_path, **changed))))
    assert found == [[0, 1], [4, 5]]
    assert reason in caplog.text


def test_one_whose_number_comes_again_leaves_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = list(reader().read(several(tmp_path, episode=[1, 2, 2, 1, 3, 3], terminated=[False] * 6)))
    assert rewards(found) == [[0], [1, 2], [4, 5]]
    assert "rows with its number are before other episodes" in caplog.text


def test_times_grow_within_each_episode(tmp_path: Path) -> None:
    found = list(reader().read(several(tmp_path, t=[5, 6, 1, 2, 0, 9])))
    assert rewards(found) == [[0, 1, 2, 3], [4, 5]]
