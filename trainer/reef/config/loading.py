"""Turning "package.module:Name" into the object it names."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from reef.errors import ConfigError, ReefError, nearest

T = TypeVar("T")
LAST_FOLDER = "REEF_LAST_FOLDER"  # environment variable, so that processes that are started from this one have it too


def load(path: str, what: str = "object") -> Any:
    """Import the object that `path` ("package.module:Name") names; `what` says in messages what it is to be.

    Raises:
        ConfigError: the path has another form, the module or the name in it does not exist, or the module fails.
    """
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{what} {path!r}: expected the form 'package.module:Name'.")
    if "<" in name:
        raise ConfigError(f"{what} {path!r}: it was made inside a function. Define it at the top of a module.")
    if folder := os.environ.get(LAST_FOLDER):
        search_last(folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{what} {path!r}: {_missing(module_name, error)}") from error
    except Exception as error:
        raise ConfigError(f"{what} {path!r}: {import_failure(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{what} {path!r}: {module_name} has no {part!r}.{nearest(part, _defined_in(found))}")
        found = getattr(found, part)
    return found


def settings_class(algo_class: Any, asked: type[T], *, exactly: bool = False) -> type[T]:
    """The class of the settings of an algorithm's class: `asked`, or unless `exactly` a subclass.

    Raises:
        ConfigError: it has none, or others.
    """
    found = getattr(algo_class, "config_class", None)
    if not isinstance(found, type):
        raise ConfigError(f"algo_class={algo_class!r}: expected a subclass of reef.Algorithm.")
    if found is asked or (issubclass(found, asked) and not exactly):
        return found
    raise ConfigError(
        f"algo_class={algo_class!r}: its settings are {found.__name__}, and not {asked.__name__}. Leave algo_class out."
    )


def load_callable(given: Any, key: str, expected: str) -> Callable[..., Any]:
    """What the setting `key` holds or names by its path, and can be called; `expected` says in messages what it is.

    Raises:
        ConfigError: it cannot be loaded or called.
    """
    found: Any = load(given, key) if isinstance(given, str) else given
    if not callable(found):
        raise ConfigError(f"{key}={given!r} is {found!r}: expected {expected}.")
    return found  # type: ignore[no-any-return]


def load_function(given: Any, key: str, *arguments: str) -> Callable[..., Any]:
    """The function that the setting `key` holds or names; `arguments` are the names of what it is called with.

    Raises:
        ConfigError: it cannot be loaded, is no function, or takes other arguments.
    """
    called_with = f"({', '.join(arguments)})"
    found = load_callable(given, key, f"a function of {called_with}")
    try:
        inspect.signature(found).bind(*arguments)
    except TypeError as error:
        raise ConfigError(f"{key}={given!r}: {error}. It is called with {called_with}: take these.") from error
    except ValueError:  # a compiled function without a signature
        pass
    return found


def _defined_in(holder: Any) -> list[str]:
    """The names of a module or class that may be meant: what it holds, but no modules that it imports."""
    return [name for name, value in inspect.getmembers(holder) if not inspect.ismodule(value) and name[:1] != "_"]


def import_failure(error: Exception) -> str:
    """Say what ended the import of a module, with file and line: of the innermost module that was being imported."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    place = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    kind = "" if isinstance(error, ReefError) else f"{type(error).__name__}: "
    return f"{place}{kind}{error}"


def search_last(folder: str) -> None:
    """Find modules in `folder` too, here and in processes started from here, but none in place of an installed one.

    PYTHONPATH would come first: a `random.py` there would replace Python's.
    """
    os.environ[LAST_FOLDER] = folder
    if folder not in sys.path:
        sys.path.append(folder)


def _missing(module_name: str, error: ModuleNotFoundError) -> str:
    """Say whether a module does not exist, or itself imports something that does not."""
    if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
        return f"there is no module {error.name!r}. Install it, or put its folder on PYTHONPATH."
    return f"module {module_name!r} imports {error.name!r}, which is not installed."
