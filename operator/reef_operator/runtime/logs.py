"""Log formats: JSON for machines, a line of text for people. Both contain the job's name and never a secret."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

Format = Literal["json", "text"]

NOISY = ("aiohttp.access", "asyncio", "kopf.activities", "kopf.objects", "urllib3")


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger and message, with namespace and job if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **job_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """One line of text per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        job = job_of(record)
        where = f" {job['namespace']}/{job['job']}" if "job" in job else ""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        line = f"{time} {record.levelname:<7}{where} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def job_of(record: logging.LogRecord) -> dict[str, str]:
    """Return namespace and name of a record's job, from our own fields or Kopf's."""
    reference = getattr(record, "k8s_ref", None) or {}
    namespace = getattr(record, "namespace", None) or reference.get("namespace")
    job = getattr(record, "job", None) or reference.get("name")
    return {"namespace": str(namespace), "job": str(job)} if namespace and job else {}


def configure(log_format: Format, *, level: str = "info") -> None:
    """Send all log records to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # These loggers write a line for every request and every event of a watch.
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
