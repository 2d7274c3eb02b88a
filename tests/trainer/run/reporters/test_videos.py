"""Where videos are written, and how results name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reef.algorithms.bc import BCConfig
from reef.algorithms.ppo import PPOConfig
from reef.batch import Sample, Video
from reef.cli.main import main
from reef.errors import ConfigError
from reef.run.build import run_experiment
from reef.run.reporters.curves import newest_video
from reef.run.reporters.files import read_results
from reef.run.reporters.videos import VideoFolder

SMALL = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}


def config(**changed: Any) -> PPOConfig:
    return PPOConfig().update_from_dict({"env": "CartPole-v1", "record_env": True, "seed": 1, **SMALL, **changed})


def sample(*episodes: int) -> Sample:
    return Sample({}, [], 0, 0, videos=[Video(b"mp4", {"episode": episode}) for episode in episodes])


def test_a_run_has_its_videos_in_its_folder(tmp_path: Path):
    changed = {"evaluation_interval": 2, "evaluation_duration": 1, "rollout_fragment_length": 64}
    summary = run_experiment(
        config(**changed), stop={"training_iteration": 2}, storage_path=tmp_path, reporters=[], name="r"
    )
    first, second = read_results(summary.folder)
    assert first["episode_media"] == {"videos": ["videos/iteration_000001_episode_000001.mp4"]}
    evaluated = second["evaluation"]["episode_media"]
    assert evaluated == {"videos": ["videos/evaluation_iteration_000002_episode_000001.mp4"]}
    for name in (*first["episode_media"]["videos"], *evaluated["videos"]):
        video = summary.folder / name
        assert video.read_bytes()[4:8] == b"ftyp"
        about = json.loads(video.with_suffix(".json").read_text())
        assert about["return"] == about["length"] == about["frames"] - 1
        assert about["evaluation"] is name.startswith("videos/evaluation")
        assert about["policies"] == {"agent0": "default_policy"}
        assert about["iteration"] == (2 if about["evaluation"] else 1)


def test_the_older_monitor_means_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(match="record_env"):
        older = PPOConfig.from_dict({"env": "CartPole-v1", "monitor": True, "rollout_fragment_length": 64, **SMALL})
    with older.build() as algorithm:
        assert algorithm.train()["episode_media"]["videos"]
    assert (tmp_path / "videos").is_dir()


def test_evaluation_can_be_recorded_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    changed = {"record_env": False, "evaluation_config": {"record_env": "seen"}, "evaluation_interval": 1}
    with config(**changed, evaluation_duration=1).build() as algorithm:
        result = algorithm.train()
    assert result["episode_media"] == {}
    assert result["evaluation"]["episode_media"] == {
        "videos": [str(tmp_path / "seen" / "evaluation_iteration_000001_episode_000001.mp4")]
    }


def test_a_function_that_evaluates_has_videos_too(tmp_path: Path):
    def play(_: Any, workers: Any) -> dict[str, Any]:
        played = workers.foreach_worker(lambda worker: worker.sample_episodes(1).env_steps)
        return {"steps": played[0] + workers.sample_episodes(1)[0].env_steps}

    changed = {"custom_evaluation_function": play, "record_env": False, "evaluation_config": {"record_env": True}}
    summary = run_experiment(
        config(**changed, evaluation_interval=1), stop={"training_iteration": 2}, storage_path=tmp_path, reporters=[]
    )
    first, second = (result["evaluation"] for result in read_results(summary.folder))
    (name,) = first["episode_media"]["videos"]
    assert (summary.folder / name).read_bytes()[4:8] == b"ftyp"
    assert first["steps"] > 1
    assert second["episode_media"] == {}, "the episodes 3 and 4 of this worker are none that is recorded"


def test_evaluation_has_a_folder_of_its_own(tmp_path: Path):
    own = {"record_env": str(tmp_path / "own")}
    changed = {"evaluation_config": own, "evaluation_interval": 1, "evaluation_duration": 1}
    summary = run_experiment(
        config(**changed), stop={"training_iteration": 1}, storage_path=tmp_path, reporters=[], name="r"
    )
    (result,) = read_results(summary.folder)
    assert result["episode_media"]["videos"][0].startswith("videos/iteration")
    assert result["evaluation"]["episode_media"]["videos"][0].startswith(str(tmp_path / "own" / "evaluation_iteration"))


@pytest.mark.parametrize("key", ["record_env", "render_env"])
def test_what_learns_from_files_draws_in_evaluation_alone(key: str):
    with pytest.raises(ConfigError, match=f"{key}=True: BC samples no episodes to draw. Leave it out; evaluation_conf"):
        BCConfig().update_from_dict({"env": "CartPole-v1", "input_": "x.json", key: True}).validate()


def test_without_a_run_they_are_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with config(rollout_fragment_length=64).build() as algorithm:
        (path,) = algorithm.train()["episode_media"]["videos"]
    assert path == str(tmp_path / "videos" / "iteration_000001_episode_000001.mp4")


def test_nothing_is_kept_where_nothing_is_recorded():
    with config(record_env=False).build() as algorithm:
        assert algorithm.metrics.videos is None
        assert algorithm.train()["episode_media"] == {}


def test_a_folder_of_the_settings_stays_that_of_the_run(tmp_path: Path):
    folder = VideoFolder(str(tmp_path / "given"))
    folder.belong_to(tmp_path / "run")
    folder.add(sample(1))
    assert folder.write(3) == {"videos": [str(tmp_path / "given" / "iteration_000003_episode_000001.mp4")]}
    assert folder.write(4) == {}


def test_no_video_is_overwritten(tmp_path: Path):
    for content in (b"first", b"second", b"third"):  # by several runs, or by a worker that was restarted
        VideoFolder(str(tmp_path)).write_all([Video(content, {"episode": 1, "return": len(content)})], 3)
    files = [tmp_path / f"iteration_000003_episode_000001{end}.mp4" for end in ("", "_2", "_3")]
    assert [file.read_bytes() for file in files] == [b"first", b"second", b"third"]
    assert [json.loads(file.with_suffix(".json").read_text())["return"] for file in files] == [5, 6, 5]


def test_a_disk_that_refuses_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("in the way")
    folder = VideoFolder(str(tmp_path / "file" / "videos"))
    for iteration in (1, 2):
        folder.add(sample(iteration))
        assert folder.write(iteration) == {}
    (record,) = caplog.records
    assert "videos cannot be written to" in record.message
    assert "Training goes on" in record.message


def test_a_full_disk_leaves_no_half_of_a_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reef.run.reporters.files.os.fsync", refuse)
    folder = VideoFolder(str(tmp_path))
    folder.add(sample(1))
    assert folder.write(1) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_page_shows_the_newest_video_of_each_run(tmp_path: Path):
    line = {"training_iteration": 1, "timesteps_total": 1, "episode_reward_mean": 2.0}
    for run, content in (("a", b"first"), ("b", b"second")):
        (tmp_path / run / "videos").mkdir(parents=True)
        (tmp_path / run / "videos" / "iteration_000001_episode_000008.mp4").write_bytes(content)
        names = [f"videos/iteration_000001_episode_{number:06d}.mp4" for number in (8, 27)]  # one was removed
        (tmp_path / run / "result.json").write_text(json.dumps(line | {"episode_media": {"videos": names}}) + "\n")
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<video controls") == 2
    assert "data:video/mp4;base64,Zmlyc3Q=" in page
    assert "iteration 000001 episode 000008" in page
    assert newest_video(tmp_path / "a", [line]) == []


@pytest.mark.ray
def test_the_first_of_several_workers_sends_its_videos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: Any
):
    monkeypatch.chdir(tmp_path)
    with config(num_rollout_workers=2, rollout_fragment_length=32).build() as algorithm:
        names = [name for _ in range(3) for name in algorithm.train()["episode_media"].get("videos", [])]
    assert Path(names[0]).read_bytes()[4:8] == b"ftyp"
    assert len({json.loads(Path(name).with_suffix(".json").read_text())["episode"] for name in names}) == len(names)
