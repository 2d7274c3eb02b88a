"""What `reef evaluate` prints and writes of the episodes that it plays."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Self

from reef.errors import StorageError
from reef.offline.episode_files import EpisodeFile, PlayedEpisode, episode_file

PROGRESS_PREFIX = "__progress_"


class EpisodeReporter:
    """Prints each episode as it ends, unless the summary is to be JSON, and writes it to `out`."""

    def __init__(self, out: str | None, *, track_progress: bool, as_json: bool) -> None:
        """`track_progress`: whether a file beside `out` holds the numbers of episodes and steps so far."""
        self._out, self._track_progress, self._as_json = out, track_progress, as_json
        self._file: EpisodeFile | None = None
        self._complete: list[PlayedEpisode] = []
        self.episodes = self.steps = 0

    def __enter__(self) -> Self:
        """Raises StorageError for a file that cannot be written."""
        self._write_progress()
        if self._out:
            self._file = episode_file(self._out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; a new one in which nothing came to be is removed."""
        if self._file:
            self._file.close()

    def report(self, episode: PlayedEpisode) -> None:
        """Print and write an episode; its steps are forgotten then."""
        if not self._as_json:
            cut = "" if episode.complete else ", cut by the step limit"
            print(f"Episode #{episode.number}: reward: {episode.reward:g} ({episode.length} steps{cut})")
        if self._file:
            self._file.add(episode)
        episode.steps.clear()
        self.episodes, self.steps = self.episodes + 1, self.steps + episode.length
        if episode.complete:
            self._complete.append(episode)
        self._write_progress()

    def _write_progress(self) -> None:
        """Replace the file, so that a reader never sees half of it."""
        if not (self._out and self._track_progress):
            return
        path = Path(self._out).with_name(f"{PROGRESS_PREFIX}{Path(self._out).name}")
        new = path.with_name(f"{path.name}.tmp")
        try:
            new.write_text(f"episodes {len(self._complete)}\nsteps {self.steps}\n", encoding="utf-8")
            new.replace(path)
        except OSError as error:
            raise StorageError(f"--track-progress: {path} cannot be written: {error.strerror}.") from error

    def summarize(self) -> None:
        """Print the numbers of the complete episodes."""
        rewards = [episode.reward for episode in self._complete]
        count = len(rewards)
        mean = sum(rewards) / count if count else None
        length = sum(episode.length for episode in self._complete) / count if count else None
        if self._as_json:
            summary = {
                "episodes": count,
                "steps": self.steps,
                "episode_reward_mean": mean,
                "episode_reward_min": min(rewards, default=None),
                "episode_reward_max": max(rewards, default=None),
                "episode_len_mean": length,
                "episode_rewards": rewards,
            }
            print(json.dumps(summary))
        elif count:
            spread = f"{min(rewards):g} to {max(rewards):g}"
            plural = "s" * (count != 1)
            print(f"{count} complete episode{plural}: mean reward {mean:g} ({spread}), mean length {length:g}")
        else:
            print("No episode was complete: raise --steps.")
