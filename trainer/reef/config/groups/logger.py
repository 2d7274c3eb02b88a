"""What is wrong with the settings `logger_creator` and `logger_config`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reef.config.loading import load_callable
from reef.errors import ConfigError, nearest

LOGGERS = ("mlflow", "wandb")  # that Reef brings
SECRET = re.compile(r"(key|token|password|passwd|secret)$")  # of a name in small letters, without "-" and "_"


def logger_problems(creator: Any, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments need a logger that there is, and no secret may be among them, at any depth."""
    if arguments and creator is None:
        yield f"logger_config={sorted(arguments)}: there is no logger_creator that takes it. Set it too."
    if creator not in (None, *LOGGERS):
        try:
            load_callable(creator, "logger_creator", "a class derived from reef.run.reporters.reporter.Reporter")
        except ConfigError as error:
            yield f"{error}{nearest(str(creator), LOGGERS)}"
    for path in secrets_in(arguments):
        yield (
            f"logger_config: {path!r} may hold a secret, and would be in params.json and in checkpoints. Remove it, "
            "and set a variable of the environment, such as WANDB_API_KEY."
        )


def secrets_in(value: Any, place: str = "") -> Iterator[str]:
    """The dotted path of each key whose value may be a secret, by its name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if SECRET.search(re.sub("[-_]", "", str(key)).lower()):
                yield f"{place}{key}"
            else:
                yield from secrets_in(inner, f"{place}{key}.")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets_in(inner, place)
