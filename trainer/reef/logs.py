"""Lines of logs on the standard error, without the passwords and signatures of addresses."""

from __future__ import annotations

import logging

from reef.errors import redacted

SHORT = "%(levelname)s %(name)s: %(message)s"
WITH_TIME = f"%(asctime)s {SHORT}"


class _Redacted(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def log_to_stderr(form: str = SHORT, level: int = logging.WARNING) -> None:
    """Log there unless the process has been told otherwise before."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Redacted(form))
    logging.basicConfig(level=level, handlers=[handler])
