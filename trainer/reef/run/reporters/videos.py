"""Videos of episodes, as files beside the results that name them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from reef.batch import Sample, Video
from reef.run.events import RunStarted, SampleTaken
from reef.run.reporters.files import replace_bytes

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm

log = logging.getLogger(__name__)
VIDEOS = "videos"  # the folder below a run's, and the key under `episode_media`


class VideoFolder:
    """Writes each video as an mp4 file and a JSON file of the same name, its description.

    A disk that refuses them is warned of once and never ends the run.
    """

    def __init__(self, record_env: bool | str) -> None:
        """`record_env`: the setting. Without the folder of a run, true stands for videos/ in the current one."""
        self._given = isinstance(record_env, str)
        self.folder = Path(record_env if isinstance(record_env, str) else VIDEOS).expanduser()
        self._run: Path | None = None
        self._waiting: list[Video] = []
        self._warned = False

    def belong_to(self, run: Path) -> None:
        """Write below the folder of a run, unless the setting names another one."""
        self._run = run
        if not self._given:
            self.folder = run / VIDEOS

    def add(self, sample: Sample) -> None:
        """Keep the videos of a sample until `write`."""
        self._waiting += sample.videos

    def write(self, iteration: int) -> dict[str, list[str]]:
        """Write the videos that came in this iteration; returns where they are, for a result."""
        waiting, self._waiting = self._waiting, []
        return self.write_all(waiting, iteration)

    def write_all(self, videos: Iterable[Video], iteration: int) -> dict[str, list[str]]:
        """Write these videos, of the weights of an iteration; safe to call from any thread."""
        written = []
        try:
            for video in videos:
                written.append(self._write(video, iteration))  # noqa: PERF401 (those before a failure count)
        except OSError as error:
            if not self._warned:
                log.warning("videos cannot be written to %s: %s. Training goes on without.", self.folder, error)
            self._warned = True
        return {VIDEOS: written} if written else {}

    def _write(self, video: Video, iteration: int) -> str:
        about = {"iteration": iteration, **video.description}
        kind = "evaluation_" if about.get("evaluation") else ""
        path = _unused(self.folder / f"{kind}iteration_{iteration:06d}_episode_{about['episode']:06d}.mp4")
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, video.content)
        replace_bytes(path.with_suffix(".json"), (json.dumps(about, indent=2) + "\n").encode())
        inside = self._run is not None and path.is_relative_to(self._run)
        return str(path.relative_to(self._run) if inside and self._run else path.absolute())


def _unused(path: Path) -> Path:
    """The path, with a number behind its name where there is such a file: a restarted worker counts from 1 again."""
    numbered = (path.with_stem(f"{path.stem}_{number}") for number in count(2))
    return next(each for each in chain([path], numbered) if not each.exists())


def keep_videos(algorithm: Algorithm) -> None:
    """Have the videos that workers record written to the folders of their settings, and named in the results."""
    if algorithm.config.record_env:
        folder = algorithm.metrics.videos = VideoFolder(algorithm.config.record_env)
        algorithm.events.subscribe(SampleTaken, lambda event: folder.add(event.sample))
    for each in (algorithm.metrics.videos, algorithm.evaluation.videos):
        if each is not None:
            algorithm.events.subscribe(RunStarted, partial(_into_run, each))


def _into_run(folder: VideoFolder, event: RunStarted) -> None:
    folder.belong_to(event.run.folder)
