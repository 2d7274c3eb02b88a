"""What `reef train file` reads: a job document in a file or behind an http(s) address, or a Python file of settings."""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reef.cli.document.experiments import without_searches
from reef.errors import ConfigError, sentence

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig

KINDS = ("yaml", "python")
TIMEOUT_S = 10.0  # for each part of an answer
TOTAL_TIMEOUT_S = 30.0  # for all of them together


def kind_of(source: str) -> str:
    """Return "python" for a name that ends in .py, else "yaml"."""
    return "python" if urlsplit(source).path.endswith(".py") else "yaml"


def read_source(source: str, kind: str) -> Any:
    """Return the job document at a path or address; what it holds is not checked.

    Raises:
        ConfigError: it cannot be read or fetched, is no YAML, or is a Python file that fails or has no `config`.
    """
    from reef.api.loading import parse_yaml, read_yaml

    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    if scheme and scheme[1].lower() not in ("http", "https"):
        raise ConfigError(f"{source}: addresses begin with http:// or https://. Fetch it yourself and name the file.")
    if scheme and kind == "python":
        raise ConfigError(f"{source}: Python from elsewhere is not run. Fetch it, look at it and name the file.")
    if scheme:
        return parse_yaml(fetch(source), source)
    return document_of(Path(source)) if kind == "python" else read_yaml(source)


def fetch(url: str) -> str:
    """Return the text at an http(s) address.

    The whole has one limit of time: a server may send its headers byte by byte, each of them in time. What is left of
    such an exchange ends with the process.

    Raises:
        ConfigError: no server answers in time, the answer is an error, cut off, too large or no UTF-8 text.
    """
    answers: queue.Queue[bytes | Exception] = queue.Queue()

    def exchange() -> None:
        try:
            answers.put(_body(url))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=exchange, name="fetch", daemon=True).start()
    try:
        answer = answers.get(timeout=TOTAL_TIMEOUT_S)
    except queue.Empty:
        raise ConfigError(f"{url}: did not arrive within {TOTAL_TIMEOUT_S:g} seconds.") from None
    if isinstance(answer, Exception):
        raise _refusal(url, answer) from None  # it may quote a part of the address, such as the password
    try:
        return answer.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{url}: is no UTF-8 text.") from error


def _body(url: str) -> bytes:
    from urllib.request import FTPHandler, build_opener

    from reef.api.limits import MAX_BYTES

    class NoFtp(FTPHandler):
        """Where another server sends us to is http or https too."""

        def ftp_open(self, request: Any) -> Any:
            raise ValueError("it leads to an ftp address")

    with build_opener(NoFtp).open(url, timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise ConfigError(f"{url}: has over {MAX_BYTES} bytes, which no job document needs.")
        if answer.length:  # what is still missing of the length that was announced
            raise ConfigError(f"{url}: was cut off, {answer.length} bytes are missing. Try again.")
        return body


def _refusal(url: str, error: Exception) -> ConfigError:
    from urllib.error import HTTPError

    if isinstance(error, ConfigError):
        return error
    if isinstance(error, HTTPError):
        return ConfigError(f"{url}: the server answers {error.code} {error.reason}.")
    reason = str(getattr(error, "reason", error))
    if "@" in url or "?" in url:  # a part of the address may be what the reason quotes
        reason = "it is no address that can be reached, or needs another user" if "@" in url else type(error).__name__
    return ConfigError(f"{url}: cannot be fetched: {reason}.")


def document_of(path: Path) -> dict[str, Any]:
    """Run a Python file and return its `config` and `stop` as a job document, without `spec.stop` where it has none.

    Values such as `tune.grid_search([...])` make a sweep.

    Raises:
        ConfigError: it cannot be run, or `config` is neither an AlgorithmConfig nor settings with an algorithm.
    """
    from reef.algorithms.registry import ALGORITHMS
    from reef.config.applications import named_in_document
    from reef.config.values import MisfitError, plain

    module = run_python(path)
    config = _config_of(module, path)
    try:
        settings = {key: plain(value) for key, value in config.changed().items()}
    except MisfitError as error:
        raise ConfigError(f"{path}: config holds something that a result folder cannot: {sentence(error)}") from error
    environment = {
        "name": named_in_document(settings.pop("env", None), settings),
        "config": settings.pop("env_config", {}),
    }
    algorithm = config.algorithm if config.algorithm in ALGORITHMS else config.algorithm_class
    parameters: dict[str, Any] = {}
    environment["config"] = without_searches(environment["config"], parameters, "env_config.")
    spec = {"algorithm": algorithm, "environment": environment, "config": without_searches(settings, parameters)}
    if parameters:
        spec["tune"] = {"parameters": parameters}
    if stop := getattr(module, "stop", None):
        spec["stop"] = stop
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:52].rstrip("-") or "job"
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": name}, "spec": spec}


def run_python(path: Path) -> ModuleType:
    """Import a file as the module of its name, so that "name:Class" leads to what it defines, also in Ray's workers.

    It can import what lies beside it, except by names that Python or an installed package has.
    """
    from reef.config.loading import import_failure, search_last

    path = path.absolute()
    name = path.stem
    if not os.path.isfile(path):  # Path.is_file raises where looking is not allowed
        raise ConfigError(f"{path}: there is no such file.")
    if not name.isidentifier() or _is_taken(name, path):
        raise ConfigError(f"{path}: {name!r} cannot be the name of a module, or is one's already. Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: expected a Python file, whose name ends in .py.")
    search_last(str(path.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(import_failure(error)) from error
    return module


def _is_taken(name: str, path: Path) -> bool:
    if name in sys.modules or name in sys.stdlib_module_names:
        return True
    found = importlib.util.find_spec(name)
    return bool(found and found.origin and Path(found.origin).resolve() != path.resolve())


def _config_of(module: ModuleType, path: Path) -> AlgorithmConfig:
    from reef.algorithms.registry import config_class
    from reef.config import AlgorithmConfig

    config = getattr(module, "config", None)
    if isinstance(config, Mapping):
        settings = dict(config)
        if not isinstance(name := settings.pop("algorithm", None), str):
            raise ConfigError(f'{path}: the dict `config` names no algorithm. Add for example "algorithm": "PPO".')
        return config_class(name).from_dict(settings)
    if not isinstance(config, AlgorithmConfig):
        raise ConfigError(
            f"{path}: its `config` is {type(config).__name__}. Assign one, such as config = PPOConfig()."
            "environment(...), or a dict of settings."
        )
    return config
