"""TensorBoard curves, over environment steps. Without the tensorboard package: one notice and no curves."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any, BinaryIO

from reef.run.metrics import Result
from reef.run.reporters.files import storage_errors
from reef.run.reporters.reporter import Reporter, Summary, numbers_in

log = logging.getLogger(__name__)


class TensorBoardEvents(Reporter):
    """Writes one event file into the run's folder, flushed after each result.

    Names are result keys (`evaluation/episode_reward_mean`). Of a resumed run TensorBoard forgets the curves beyond the
    restored step.
    """

    def __init__(self) -> None:
        self._stream: BinaryIO | None = None
        self._missing = False

    def report(self, result: Result) -> None:
        """Write every number of the result at its environment step."""
        if self._missing:
            return
        with storage_errors(self.run.folder):
            if self._stream is None:
                try:
                    self._begin()
                except ImportError as error:
                    log.warning("no TensorBoard curves: %s. `pip install tensorboard` brings them.", error)
                    self._missing = True
                    return
            values = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers_in(result)]
            summary = self._summary(value=values)
            self._add(wall_time=float(result["timestamp"]), step=result["timesteps_total"], summary=summary)

    def finish(self, summary: Summary | None) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()

    def _begin(self) -> None:
        # imported with the first result: start-up does not pay for protobuf
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self.run.folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        self._stream = (self.run.folder / f"events.out.tfevents.{now:.6f}.{socket.gethostname()}").open("wb")
        self._records = RecordWriter(self._stream)
        self._add(wall_time=now, file_version="brain.Event:2")
        if self.run.restored_timesteps:
            restart = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._add(wall_time=now, step=self.run.restored_timesteps + 1, session_log=restart)

    def _add(self, **fields: Any) -> None:
        self._records.write(self._event(**fields).SerializeToString())
        self._records.flush()
