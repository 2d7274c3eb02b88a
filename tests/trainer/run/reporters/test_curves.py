"""Learning curves of several runs: reef.run.reporters.curves, and `reef plot` of reef.cli.plot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reef.cli.main import main
from reef.run.reporters.curves import curves_of, newest_video, runs_in


def run(folder: Path, rewards: list[float | None], **settings: object) -> Path:
    """A run's folder with these rewards, one every 100 steps."""
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(settings))
    lines = [
        {"training_iteration": number, "timesteps_total": 100 * number, "episode_reward_mean": reward}
        for number, reward in enumerate(rewards, 1)
    ]
    (folder / "result.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_runs_that_differ_in_their_seed_alone_are_one_line_with_its_spread(tmp_path: Path) -> None:
    run(tmp_path / "PPO_a", [1.0, 3.0, 5.0], lr=0.1, seed=1)
    run(tmp_path / "PPO_b", [None, 5.0, 7.0, 9.0], lr=0.1, seed=2)
    run(tmp_path / "PPO_c", [2.0, 2.0], lr=0.2, seed=1)
    curves = {curve.name: curve for curve in curves_of(runs_in(tmp_path), "timesteps_total", "episode_reward_mean")}
    assert set(curves) == {"lr=0.1 (2 seeds)", "lr=0.2"}
    steps, mean, low, high = curves["lr=0.1 (2 seeds)"].spread()
    assert (steps[0], steps[-1]) == (200, 300), "where both runs have values"
    np.testing.assert_allclose((mean[0], low[0], high[0]), (4, 3, 5))
    np.testing.assert_allclose((mean[-1], low[-1], high[-1]), (6, 5, 7))


def test_a_setting_of_a_group_names_a_line_alone(tmp_path: Path) -> None:
    for units in (8, 16):
        run(tmp_path / f"PPO_{units}", [1.0], model={"fcnet_hiddens": [units], "fcnet_activation": "tanh"})
    curves = curves_of(runs_in(tmp_path), "timesteps_total", "episode_reward_mean")
    assert sorted(curve.name for curve in curves) == ["model.fcnet_hiddens=[16]", "model.fcnet_hiddens=[8]"]


@pytest.mark.parametrize(
    ("name", "begins"), [("c.png", b"\x89PNG"), ("c.svg", b"<?xml"), ("c.pdf", b"%PDF"), ("new/c.html", b"<!doctype")]
)
def test_pictures_of_every_kind(name: str, begins: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path / "PPO_a", [1.0, 3.0], lr=0.1)
    file = tmp_path / name
    assert main(["plot", str(folder), "--out", str(file)]) == 0
    assert file.read_bytes().startswith(begins)
    assert "algorithm=PPO: episode_reward_mean 3 at timesteps_total 200" in capsys.readouterr().out


def test_a_result_cannot_put_another_file_into_a_page(tmp_path: Path) -> None:
    folder = run(tmp_path / "PPO_a", [1.0])
    own = folder / "videos" / "a.mp4"
    own.parent.mkdir()
    others = {name: tmp_path / name for name in ("secret", "other.mp4", "described.mp4")}
    for file in (own, *others.values()):
        file.write_bytes(b"content")
    others["described.mp4"].with_suffix(".json").write_text("{}")
    link = folder / "videos" / "link.mp4"
    link.symlink_to(others["secret"])

    def chosen(*names: object) -> list[Path]:
        return newest_video(folder, [{"episode_media": {"videos": [*names]}}])

    assert chosen("videos/a.mp4") == [own]
    assert chosen(str(others["described.mp4"])) == [others["described.mp4"]], "that of record_env: FOLDER"
    wrong = [str(others["secret"]), "../other.mp4", "videos/link.mp4", "videos", "videos/gone.mp4", "\0.mp4", 3, None]
    assert chosen(*wrong) == []
    assert chosen("videos/a.mp4", *wrong) == [own]


@pytest.mark.parametrize("media", [[1], 3, {"videos": 3}, {"videos": {"a": 1}}])
def test_media_of_another_form_are_no_videos(media: object, tmp_path: Path) -> None:
    assert newest_video(tmp_path, [{"episode_media": media}, {"evaluation": [1]}]) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{run}", "--out", "c.gif"], "c.gif: expected a name that ends in one of .png, .svg, .pdf, .html."),
        (["{run}", "--field", "no_such"], "has numbers in 'timesteps_total' and 'no_such'"),
        (["/no/such/run"], "/no/such/run: there is no result.json in it."),
    ],
)
def test_wrong_use(arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path / "PPO_a", [1.0], lr=0.1)
    assert main(["plot", *[text.format(run=folder) for text in arguments]]) == 2
    assert expected in capsys.readouterr().err
