"""Pictures to an mp4 file, by the ffmpeg that the package imageio-ffmpeg brings."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from reef.types import Array

ENCODER = "imageio_ffmpeg"
INSTALL = "pip install imageio-ffmpeg, or Reef with its extra 'video'"


def has_encoder() -> bool:
    """Whether videos can be written."""
    return find_spec(ENCODER) is not None


class Encoder:
    """One mp4 file of pictures `[height, width, 3]` of uint8, all of one size.

    Each picture goes to ffmpeg at once: memory holds none of them.
    """

    def __init__(self, frames_per_second: float, shape: tuple[int, ...]) -> None:
        """Raises ImportError, RuntimeError or OSError where there is no ffmpeg, or no room for its file."""
        import imageio_ffmpeg  # type: ignore[import-untyped]

        self.shape = shape
        self._padding = [(0, shape[0] % 2), (0, shape[1] % 2), (0, 0)]  # H.264 has even sizes alone
        self._folder = TemporaryDirectory(prefix="reef-video-", ignore_cleanup_errors=True)
        self._path = Path(self._folder.name) / "episode.mp4"
        self._frames: Any = imageio_ffmpeg.write_frames(
            str(self._path),
            (shape[1] + shape[1] % 2, shape[0] + shape[0] % 2),
            fps=frames_per_second,
            macro_block_size=2,
            ffmpeg_log_level="fatal",
            output_params=["-threads", "1"],
        )
        self._frames.send(None)

    def add(
        self,
        frame: Array,  # [height, width, 3] uint8
    ) -> None:
        """Take in the next picture; OSError where ffmpeg has failed."""
        self._frames.send(np.ascontiguousarray(np.pad(frame, self._padding, "edge")))

    def finish(self) -> bytes:
        """The file; OSError where ffmpeg has failed."""
        try:
            self._frames.close()
            content = self._path.read_bytes()
        finally:
            self._folder.cleanup()
        if not content:
            raise OSError("ffmpeg wrote an empty file")
        return content

    def cancel(self) -> None:
        """Forget what was written."""
        self._frames.close()
        self._folder.cleanup()
