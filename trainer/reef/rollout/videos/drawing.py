"""Listeners that draw the first environment of a worker: for videos of its episodes, or in a window."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reef.batch import Video
from reef.config import AlgorithmConfig
from reef.envs.check import frame_problem, is_shown
from reef.envs.vector import AgentsStep, EpisodeListener
from reef.rollout.episode_recorder import EpisodeRelay
from reef.rollout.videos.encoder import INSTALL, Encoder
from reef.types import AgentId, Array

if TYPE_CHECKING:
    from reef.rollout.worker import RolloutWorker

log = logging.getLogger(__name__)
DRAWN = 0  # the index of the environment
MOST_FRAMES = 10_000  # of one video; an episode that goes on is cut there
USUAL_FRAMES_PER_SECOND = 30


def is_recorded(episode: int) -> bool:
    """Whether an episode, counted from 1, becomes a video: the cubes up to 1000, then each 1000th."""
    return episode % 1000 == 0 if episode > 1000 else round(episode ** (1 / 3)) ** 3 == episode


class Drawing(EpisodeRelay):
    """Measures what drawing takes."""

    def __init__(self, then: EpisodeListener | None) -> None:
        super().__init__(then)
        self.environment: Any = None  # None: drawing has failed
        self._seconds = 0.0  # in render()

    def made(self, env: int, environment: Any, context: Any) -> None:
        """Keep the environment that is drawn."""
        if env == DRAWN:
            self.environment = environment
        super().made(env, environment, context)

    def goes_on(self) -> None:
        """The running episode was begun before: a checkpoint was restored in the middle of it."""

    def take_videos(self) -> list[Video]:
        """The videos that were completed since this was called last."""
        return []

    def close(self) -> None:
        """End what is under way."""

    def render(self) -> Any:
        """Have the environment draw itself."""
        started = time.perf_counter()
        try:
            return self.environment.render()
        finally:
            self._seconds += time.perf_counter() - started

    def take_seconds(self) -> float:
        """What drawing took since this was called last."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def give_up(self, problem: str) -> None:
        """Say once that no more is drawn: training goes on."""
        self.environment = None
        log.warning("%s Training goes on without.", problem)


class Window(Drawing):
    """Shows the environment: one with `render_mode` "human" draws with each step, others are asked to."""

    def made(self, env: int, environment: Any, context: Any) -> None:
        """Find out whether the environment draws by itself."""
        super().made(env, environment, context)
        if env == DRAWN and getattr(environment, "render_mode", None) == "human":
            self.environment = None

    def stepped(self, env: int, actions: Mapping[AgentId, Any], step: AgentsStep, *, ended: bool) -> None:
        """Draw the environment."""
        super().stepped(env, actions, step, ended=ended)
        if env != DRAWN or self.environment is None:
            return
        try:
            drawn = self.render()
        except Exception as error:
            self.give_up(f"render_env: render() raised {error!r}.")
            return
        if drawn is not None and not isinstance(drawn, bool):
            self.give_up(
                f"render_env: render() returned a {type(drawn).__name__} and opens no window: make the environment "
                "with render_mode='human', or use record_env."
            )


class VideoRecorder(Drawing):
    """Records the episodes for which `wanted` is true of their number, from 1; one that breaks is forgotten.

    A failure of the environment's `render`, or of the encoder, ends the recording with a warning, not the training.
    """

    def __init__(
        self,
        then: EpisodeListener | None,
        describe: Callable[[], Mapping[str, Any]],
        wanted: Callable[[int], bool] = is_recorded,
    ) -> None:
        """`describe`: what to write of an episode beside its return and length, as JSON values."""
        super().__init__(then)
        self.describe, self.wanted = describe, wanted
        self._episode = self._length = self._frames = 0  # numbered by the episodes that began and did not break
        self._is_whole = True  # the running episode began here
        self._return = 0.0
        self._encoder: Encoder | None = None
        self._first: Array | None = None  # of an episode to record, which has no step yet
        self._videos: list[Video] = []

    def began(self, env: int, obs: Mapping[AgentId, Any], infos: Mapping[AgentId, Any]) -> None:
        """Draw the first picture of an episode that becomes a video."""
        super().began(env, obs, infos)
        if env == DRAWN:
            self._cancel()
            self._length, self._return, self._is_whole = 0, 0.0, True
            if self.wanted(self._episode + 1):
                self._first = self._frame()

    def goes_on(self) -> None:
        """Neither record nor count an episode of which there is a part alone."""
        self._cancel()
        self._is_whole = False

    def stepped(self, env: int, actions: Mapping[AgentId, Any], step: AgentsStep, *, ended: bool) -> None:
        """Add a picture, and complete the video after the last one."""
        super().stepped(env, actions, step, ended=ended)
        if env != DRAWN:
            return
        self._length += 1
        self._return += sum(map(float, step.rewards.values()))
        self._episode += ended and self._is_whole
        if self._encoder is None and self._first is None:
            return
        try:
            self._add(complete=ended)
        except ImportError:
            self._fail(f"no videos can be written: {INSTALL}.")
        except (OSError, RuntimeError, ValueError) as error:
            self._fail(f"no videos can be written: {type(error).__name__}: {str(error).partition(chr(10))[0]}.")

    def _add(self, *, complete: bool) -> None:
        metadata = getattr(self.environment, "metadata", None) or {}
        rate = metadata.get("render_fps") or USUAL_FRAMES_PER_SECOND
        if self._first is not None:
            self._encoder = Encoder(rate, self._first.shape)
            self._encoder.add(self._first)
            self._first, self._frames = None, 1
        assert self._encoder is not None
        if (frame := self._frame()) is None:
            return
        if frame.shape != self._encoder.shape:
            raise ValueError(f"render() changed its size from {self._encoder.shape} to {frame.shape}")
        self._encoder.add(frame)
        self._frames += 1
        if not complete and self._frames < MOST_FRAMES:
            return
        encoder, self._encoder = self._encoder, None
        known = {
            "episode": self._episode if complete else self._episode + 1,
            "return": self._return,
            "length": self._length,
            "complete": complete,
            "frames": self._frames,
            "frames_per_second": rate,
        }
        self._videos.append(Video(encoder.finish(), {**known, **self.describe()}))

    def _frame(self) -> Array | None:
        """The next picture; None where there is none any more."""
        if self.environment is None:
            return None
        try:
            frame: Array = self.render()
            problem = frame_problem(frame)
        except Exception as error:
            problem = f"raised {error!r} in render()."
        if problem:
            self._fail(f"record_env: the environment {problem}")
        return None if problem else frame

    def _fail(self, problem: str) -> None:
        self._cancel()
        self.give_up(problem)

    def _cancel(self) -> None:
        self._first = None
        if self._encoder is not None:
            self._encoder.cancel()
            self._encoder = None

    def take_videos(self) -> list[Video]:
        """The videos that were completed since this was called last."""
        videos, self._videos = self._videos, []
        return videos

    def close(self) -> None:
        """Forget the episode that is under way."""
        self._cancel()


def drawing_of(worker: RolloutWorker, config: AlgorithmConfig, then: EpisodeListener | None) -> Drawing | None:
    """What draws the first environment of a worker, or None where that is not asked for."""
    if not is_shown(config, worker.worker_index):
        return None
    if config.record_env:
        return VideoRecorder(then, lambda: _about(worker))
    return Window(then) if config.render_env else None


def take_videos(worker: RolloutWorker) -> list[Video]:
    """The videos of a worker that were completed since this was called last; samples bring those of training."""
    return worker.drawing.take_videos() if worker.drawing else []


def _about(worker: RolloutWorker) -> dict[str, Any]:
    assert worker.env is not None, "its environment was drawn"
    return {
        "environment": worker.env.name,
        "seed": worker.env.seeds.current(DRAWN),
        "policies": {str(agent): policy_id for agent, policy_id in worker.env.roles(DRAWN).items()},
        "policy_version": worker.policy_version,
        "evaluation": worker.config.in_evaluation,
    }
