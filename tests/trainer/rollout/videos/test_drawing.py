"""Videos and windows of the first environment of the first worker: reef.rollout.videos."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from imageio_ffmpeg import read_frames
from shades import Shades

from reef.algorithms.ppo import PPOConfig
from reef.batch import Video
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import ConfigError, EnvironmentError
from reef.rollout.videos import drawing
from reef.rollout.videos.drawing import VideoRecorder, is_recorded
from reef.rollout.videos.encoder import Encoder
from reef.rollout.worker import RolloutWorker

SMALL = {"model": {"fcnet_hiddens": [4]}, "rollout_fragment_length": 12, "disable_env_checking": True}


class Shade(Shades):
    """Ends after three steps; its picture is brighter with every step."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    drawn: ClassVar[list[str | None]] = []

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.config, self.length = dict(context), context.get("length", 3)

    def render(self) -> Any:
        self.drawn.append(self.render_mode)
        if self.t == self.config.get("breaks_at"):
            raise ZeroDivisionError("no paint")
        size = self.config.get("size", (32, 48)) if self.t != self.config.get("grows_at") else (64, 64)
        return (
            self.config["returns"] if "returns" in self.config else np.full((*size, 3), min(80 * self.t, 240), np.uint8)
        )


class ShownByItself(Shade):
    """Returns nothing, as what opens a window of its own."""

    def render(self) -> None:
        self.drawn.append(self.render_mode)


class Pair(MultiAgentEnv):
    """Two agents, two steps."""

    possible_agents = ("a", "b")
    observation_spaces = dict.fromkeys("ab", spaces.Box(0.0, 9.0, (1,), np.float32))
    action_spaces = dict.fromkeys("ab", spaces.Discrete(2))

    def __init__(self, config: dict[str, Any]) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.t = 0
        return dict.fromkeys("ab", np.zeros(1, np.float32)), {}

    def step(self, actions: dict[str, int]) -> Any:
        self.t += 1
        return dict.fromkeys("ab", np.ones(1, np.float32)), {"a": 1.0, "b": 2.0}, {"__all__": self.t == 2}, {}, {}

    def render(self) -> Any:
        return np.zeros((16, 16, 3), np.uint8)


def settings(env: Any = Shade, env_config: dict[str, Any] | None = None, **changed: Any) -> AlgorithmConfig:
    given = {"env": env, "env_config": env_config or {}, "record_env": True, "seed": 3, **SMALL, **changed}
    return PPOConfig().update_from_dict(given).validate().freeze()


def videos_of(config: AlgorithmConfig, worker_index: int = 0) -> list[Video]:
    worker = RolloutWorker(config, worker_index)
    videos = worker.sample().videos
    worker.stop()
    return videos


def shades(video: Video, folder: Path) -> list[int]:
    file = folder / "video.mp4"
    file.write_bytes(video.content)
    frames = [np.frombuffer(frame, np.uint8) for frame in itertools.islice(read_frames(file), 1, None)]
    return [int(frame.mean().round(-1)) for frame in frames]


def test_cubes_and_then_each_thousandth_are_recorded():
    first = [1, 8, 27, 64, 125, 216, 343, 512, 729, 1000]
    assert [number for number in range(1, 3001) if is_recorded(number)] == [*first, 2000, 3000]


def test_a_video_shows_the_first_observation_and_every_step(tmp_path: Path):
    (video,) = videos_of(settings())
    assert shades(video, tmp_path) == [0, 80, 160, 240]
    seed = video.description.pop("seed")
    assert isinstance(seed, int)
    assert video.description == {
        "episode": 1,
        "return": 6.0,
        "length": 3,
        "complete": True,
        "frames": 4,
        "frames_per_second": 10,
        "environment": "Shade",
        "policies": {"agent0": "default_policy"},
        "policy_version": 0,
        "evaluation": False,
    }


def test_an_episode_that_spans_samples_is_one_video(tmp_path: Path):
    worker = RolloutWorker(settings(rollout_fragment_length=2))
    assert worker.sample().videos == []
    (video,) = worker.sample().videos
    assert shades(video, tmp_path) == [0, 80, 160, 240]
    assert [len(worker.sample().videos) for _ in range(10)] == [0] * 8 + [0, 1]  # the 8th ends with the 24th step


def test_an_episode_of_which_a_part_was_before_the_checkpoint_is_not_recorded(tmp_path: Path):
    worker, resumed = (RolloutWorker(settings(rollout_fragment_length=2)) for _ in range(2))
    worker.sample()
    resumed.set_state(worker.state())
    assert resumed.sample().videos == [], "the third step of the episode, and one of the next"
    (video,) = resumed.sample().videos
    assert (video.description["episode"], video.description["length"]) == (1, 3)
    assert shades(video, tmp_path) == [0, 80, 160, 240]
    resumed.sample()
    resumed.set_state(resumed.state())
    assert resumed.episodes.lengths[0] == 2, "of the third episode"
    assert [len(resumed.sample().videos) for _ in range(11)] == [0] * 10 + [1], "8th that began here"


def test_an_episode_without_steps_at_the_checkpoint_is_recorded(tmp_path: Path):
    worker, resumed = (RolloutWorker(settings(rollout_fragment_length=3)) for _ in range(2))
    worker.sample()
    resumed.set_state(worker.state())
    (video,) = resumed.sample().videos
    assert shades(video, tmp_path) == [0, 80, 160, 240]


def test_only_the_first_worker_and_environment_are_drawn():
    Shade.drawn.clear()
    config = settings(num_rollout_workers=2, num_envs_per_worker=3)
    assert videos_of(config, 2) == []
    assert Shade.drawn == []
    assert len(videos_of(config, 1)) == 1
    assert set(Shade.drawn) == {"rgb_array"}
    assert len(Shade.drawn) == 1 + 4  # the check, and of four episodes the first one
    worker = RolloutWorker(config, 1)
    assert [env.render_mode for env in worker.env.envs] == ["rgb_array", None, None]


def test_the_driver_tries_it_out_for_its_workers():
    config = settings(env_config={"returns": None}, num_rollout_workers=2)
    with pytest.raises(EnvironmentError, match="record_env: environment 'Shade' returned None"):
        RolloutWorker(config, 0, with_env=False)


def test_registered_environments_are_made_to_draw():
    config = settings("CartPole-v1", num_envs_per_worker=2, rollout_fragment_length=200)
    videos = videos_of(config)
    assert [video.description["episode"] for video in videos] == [1, 8]
    assert videos[0].content[4:8] == b"ftyp"
    assert videos[0].description["frames"] == videos[0].description["length"] + 1


def test_a_vector_alone_is_not_drawn():
    class Vector(gym.vector.VectorEnv[Any, Any, Any]):
        pass

    gym.register("VectorAlone-v0", vector_entry_point=Vector)
    try:
        with pytest.raises(ConfigError, match="record_env=True: environment 'VectorAlone-v0' is registered in its vec"):
            RolloutWorker(settings("VectorAlone-v0"))
    finally:
        del gym.registry["VectorAlone-v0"]


def test_several_agents_are_one_video():
    (video,) = videos_of(settings(Pair))
    assert video.description["return"] == 6.0
    assert video.description["policies"] == {"a": "default_policy", "b": "default_policy"}


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({"returns": None}, "returned None (NoneType) from render(), expected an array [height, width, 3] of uint8"),
        ({"returns": np.zeros((4, 4))}, "returned float64 [4, 4] from render()"),
        ({"breaks_at": 0}, "raised in render() after a reset: ZeroDivisionError: no paint."),
    ],
)
def test_what_cannot_draw_is_refused_before_training(env_config: dict[str, Any], message: str):
    with pytest.raises(EnvironmentError) as refused:
        RolloutWorker(settings(env_config=env_config))
    assert message in str(refused.value)
    assert "Make it with render_mode='rgb_array'" in str(refused.value)
    assert "record_env" in str(refused.value)


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({"breaks_at": 2}, "raised ZeroDivisionError('no paint') in render()."),
        ({"grows_at": 2}, "render() changed its size from (32, 48, 3) to (64, 64, 3)"),
    ],
)
def test_what_fails_later_is_warned_of_once(env_config: dict[str, Any], message: str, caplog: Any):
    worker = RolloutWorker(settings(env_config=env_config))
    for _ in range(3):
        assert worker.sample().videos == []
    (record,) = [record for record in caplog.records if "Training goes on" in record.message]
    assert message in record.message


@pytest.mark.parametrize("error", [ImportError("no imageio"), RuntimeError("no ffmpeg"), OSError(28, "No space left")])
def test_an_encoder_that_fails_does_not_end_the_training(error: Exception, caplog: Any, monkeypatch: Any):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(drawing, "Encoder", fail)
    worker = RolloutWorker(settings())
    for _ in range(2):
        assert len(worker.sample().episodes) == 4
    (record,) = [record for record in caplog.records if "no videos can be written" in record.message]
    assert ("imageio-ffmpeg" if isinstance(error, ImportError) else str(error)) in record.message


def test_an_endless_episode_is_cut(monkeypatch: Any):
    monkeypatch.setattr(drawing, "MOST_FRAMES", 5)
    (video,) = videos_of(settings(env_config={"length": 100}))
    about = video.description
    assert (about["complete"], about["frames"], about["length"], about["episode"]) == (False, 5, 4, 1)


def test_odd_sizes_are_padded(tmp_path: Path):
    (video,) = videos_of(settings(env_config={"size": (17, 31)}))
    file = tmp_path / "video.mp4"
    file.write_bytes(video.content)
    assert next(read_frames(file))["size"] == (32, 18)


def test_encoder_leaves_nothing_behind(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    encoder = Encoder(30, (16, 16, 3))
    encoder.add(np.zeros((16, 16, 3), np.uint8))
    assert any(tmp_path.iterdir())
    encoder.cancel()
    assert not any(tmp_path.iterdir())
    encoder = Encoder(30, (16, 16, 3))
    encoder.add(np.zeros((16, 16, 3), np.uint8))
    assert encoder.finish()
    assert not any(tmp_path.iterdir())


def test_rendering_is_timed_and_costs_nothing_when_it_is_not_asked_for():
    timers = RolloutWorker(settings()).sample().timers
    assert 0 < timers["env_render"] < timers["sample"]
    worker = RolloutWorker(settings(record_env=False))
    assert worker.drawing is None
    assert worker.sample().timers["env_render"] == 0.0


def test_a_window_is_drawn_with_each_step():
    ShownByItself.drawn.clear()
    worker = RolloutWorker(settings(ShownByItself, record_env=False, render_env=True))
    assert ShownByItself.drawn == []
    worker.sample()
    assert ShownByItself.drawn == []  # one made with "human" shows itself
    worker.drawing.environment = worker.env.envs[0]  # as of one that does not know the mode
    worker.sample()
    assert len(ShownByItself.drawn) == 12


def test_a_picture_is_no_window(caplog: Any):
    def create(context: Any) -> Shade:
        env = Shade(context)
        env.render_mode = "rgb_array"
        return env

    worker = RolloutWorker(settings(create, record_env=False, render_env=True))
    worker.sample()
    worker.sample()
    (record,) = [record for record in caplog.records if "opens no window" in record.message]
    assert "render_env: render() returned a ndarray" in record.message


def test_without_a_display_a_window_is_refused(monkeypatch: Any):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    for workers in (0, 2):
        config = settings("CartPole-v1", record_env=False, render_env=True, num_rollout_workers=workers)
        with pytest.raises(ConfigError, match="render_env=True: there is no display to show environment 'CartPole-v1'"):
            RolloutWorker(config, 0, with_env=workers == 0)


@pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="CartPole draws with pygame")
def test_a_registered_environment_opens_its_window():
    worker = RolloutWorker(settings("CartPole-v1", record_env=False, render_env=True))
    assert worker.env.envs[0].render_mode == "human"
    worker.stop()


def test_an_environment_draws_in_one_way():
    with pytest.raises(ConfigError, match="record_env=True, render_env=True: an environment draws in one way"):
        settings(render_env=True)
    with pytest.raises(ConfigError, match="record_env='': expected the path of a folder"):
        settings(record_env="")


def test_a_recorder_passes_on_what_it_hears():
    heard: list[str] = []

    class Listener:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: heard.append(name) or {"options": 1}

    recorder = VideoRecorder(Listener(), dict)  # type: ignore[arg-type]
    recorder.made(1, None, None)
    assert recorder.begins(1) == {"options": 1}
    recorder.began(1, {}, {})
    recorder.stepped(1, {}, None, ended=True)  # type: ignore[arg-type]
    assert heard == ["made", "begins", "began", "stepped"]
