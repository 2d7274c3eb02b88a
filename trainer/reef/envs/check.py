"""A look at an environment before training: does it keep the Gymnasium API?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from reef.config import AlgorithmConfig
from reef.config.spaces import require_mask
from reef.envs.failures import describe, failure
from reef.envs.old_api import STEPS_TO_NEW_API
from reef.errors import ConfigError, EnvironmentError
from reef.spaces import Layout, Space
from reef.types import DEFAULT_POLICY, Array

Differences = Callable[..., Iterator[str]]  # of a value, and what it is called, from its space
RENDERS = (
    "Make it with render_mode='rgb_array' (a function or class finds the mode in env_config.render_mode), or leave "
    "record_env out."
)
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
STEP_RESULT = ("obs", "reward", "terminated", "truncated", "info")


def check_env(env: Any, name: str, config: AlgorithmConfig | None = None) -> None:
    """Reset and step `env` once; EnvironmentError lists everything that breaks the API, with the fix.

    Observations are those of the space that `config` gives, where it gives one, whose bounds they need not keep.
    """
    observed, acted = check_spaces(env, name, config)
    if config is not None:
        config = config.for_policy(DEFAULT_POLICY)
        require_mask(config, observed)
    is_given = config is not None and config.observation_space is not None
    differences = partial(mismatches, observed, bounded=not is_given)
    problems = (
        list(_space_problems(observed, acted))
        or list(_reset_problems(env, name, differences))
        or list(_step_problems(env, name, _allowed_action(env, observed, acted, config), differences))
    )
    if problems:
        lines = "\n  - ".join(problems)
        raise EnvironmentError(
            f"environment {name!r} breaks the Gymnasium API:\n  - {lines}\n"
            f"Correct it{', or the setting observation_space' * is_given}; disable_env_checking=True skips this check, "
            "not the trouble."
        )


def check_methods(env: Any, name: str) -> None:
    """Raise EnvironmentError for what is no environment at all, whatever its API."""
    absent = [call for call in ("reset", "step") if not callable(getattr(env, call, None))]
    if absent:
        calls = " and no ".join(f"{call}()" for call in absent)
        raise EnvironmentError(
            f"environment {name!r} gives a {_type(env)}, which has no {calls}. Give a gymnasium.Env, or what makes one."
        )


def check_spaces(env: Any, name: str, config: AlgorithmConfig | None = None) -> tuple[Any, Any]:
    """The spaces of observations and actions: those that `config` gives come before the environment's own.

    Raises EnvironmentError where one is missing, without which nothing can be made for the environment.
    """
    found: dict[str, Any] = {}
    for kind in ("observation_space", "action_space"):
        given = getattr(config, kind, None)
        found[kind] = getattr(env, kind, None) if given is None else given
    if absent := [kind for kind, space in found.items() if space is None]:
        lines = "\n  - ".join(
            f"{kind} is missing: set self.{kind} in __init__ to a gymnasium.spaces.Space, or give the setting {kind}."
            for kind in absent
        )
        raise EnvironmentError(f"environment {name!r} breaks the Gymnasium API:\n  - {lines}")
    return found["observation_space"], found["action_space"]


def render_mode_of(config: AlgorithmConfig, worker_index: int, env: int = 0) -> Literal["human", "rgb_array"] | None:
    """How this environment of a worker is to draw itself, by Gymnasium's `render_mode`; None: not at all.

    It is the first one of the first worker. For videos it is also the driver's, which tries it out.
    """
    if env == 0 and worker_index <= 1 and config.record_env:
        return "rgb_array"
    return "human" if env == 0 and is_shown(config, worker_index) and config.render_env else None


def is_shown(config: AlgorithmConfig, worker_index: int) -> bool:
    """Whether videos and the window are of this worker: the first one that samples."""
    return worker_index == min(config.num_rollout_workers, 1)


def check_render(env: Any, name: str, mode: str) -> None:
    """Raise EnvironmentError where a new `env` cannot draw itself in this way: "rgb_array" or "human"."""
    if mode == "human":
        if not callable(getattr(env, "render", None)):
            raise EnvironmentError(f"render_env=True: environment {name!r} has no render(). Add it, or leave this out.")
        return
    try:
        env.reset()
        drawn: Any = env.render()
    except Exception as error:
        raise EnvironmentError(f"record_env: {describe(name, 'render', 'after a reset', error)}. {RENDERS}") from error
    if problem := frame_problem(drawn):
        raise EnvironmentError(f"record_env: environment {name!r} {problem} {RENDERS}")


def check_display(name: str) -> None:
    """Raise ConfigError where there is no screen to open a window on; SDL_VIDEODRIVER may name another one."""
    if sys.platform not in ("darwin", "win32") and not any(map(os.environ.get, DISPLAYS)):
        raise ConfigError(
            f"render_env=True: there is no display to show environment {name!r} on, as {', '.join(DISPLAYS)} are not "
            "set. Start Reef where there is one, or use record_env, which writes videos."
        )


def frame_problem(drawn: Any) -> str | None:
    """What is wrong with what `render()` returned, if it is no picture [height, width, 3] of uint8."""
    if isinstance(drawn, np.ndarray) and drawn.dtype == np.uint8 and drawn.ndim == 3 and drawn.shape[-1] == 3:
        return None
    found = f"{drawn.dtype} {list(drawn.shape)}" if isinstance(drawn, np.ndarray) else _show(drawn)
    return f"returned {found} from render(), expected an array [height, width, 3] of uint8."


def _space_problems(observed: Any, acted: Any) -> Iterator[str]:
    for kind, space in (("observation_space", observed), ("action_space", acted)):
        if not isinstance(space, spaces.Space):
            yield f"{kind} is a {_type(space)}, not a gymnasium.spaces.Space."
        else:
            try:
                size = Layout.of(space).size
            except EnvironmentError as error:
                yield f"{kind}: {error}"
            else:
                if size == 0 and kind == "observation_space":
                    yield f"{kind} is {space}, whose values hold nothing: leave that part out."


def _reset_problems(env: Any, name: str, differences: Differences) -> Iterator[str]:
    try:
        result = env.reset(seed=0)
    except Exception as error:
        raise failure(name, "reset", "while it was checked", error) from error
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        yield f"reset() returned {_show(result)}, expected (obs, info) with info a dict. {STEPS_TO_NEW_API}"
        return
    yield from (f"reset(): {problem}" for problem in differences(result[0], "obs"))


def _allowed_action(env: Any, observed: Space, acted: Space, config: AlgorithmConfig | None) -> Any:
    """A random action after a reset, or the first one that an action mask in the observation allows."""
    key = None if config is None else config.action_mask_key
    layout = Layout.of(acted)
    counts = [leaf.choices for leaf in layout.leaves if leaf.choices is not None]
    if len(counts) == len(layout.leaves) and isinstance(observed, spaces.Dict) and key in observed.spaces:
        ends: Array = np.cumsum(np.concatenate(counts))
        mask = np.ravel(env.reset(seed=0)[0][key])
        if ends[-1] == len(mask):  # else the policy refuses it
            first = [int(part.argmax()) for part in np.split(mask > 0, ends[:-1])]
            return layout.unflatten(np.array(first, layout.dtype).reshape(layout.shape))
    acted.seed(0)
    return acted.sample()


def _step_problems(env: Any, name: str, action: Any, differences: Differences) -> Iterator[str]:
    try:
        result = env.step(action)
    except Exception as error:
        raise failure(name, "step", f"with action {action!r} while it was checked", error) from error
    if not (isinstance(result, tuple) and len(result) == 5):
        yield f"step() returned {_show(result)}, expected 5 values ({', '.join(STEP_RESULT)}). {STEPS_TO_NEW_API}"
        return
    obs, reward, terminated, truncated, info = result
    yield from (f"step(): {problem}" for problem in differences(obs, "obs"))
    if np.ndim(reward) != 0 or not np.issubdtype(np.asarray(reward).dtype, np.number):
        yield f"step(): reward is {_show(reward)}, expected one number: return float(reward)."
    elif not np.isfinite(reward):
        yield f"step(): reward is {reward}, expected a finite number."
    for key, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            yield f"step(): {key} is {_show(value)}, expected True or False: return bool({key})."
    if not isinstance(info, dict):
        yield f"step(): info is {_show(info)}, expected a dict."


def mismatches(space: Space, value: Any, name: str, *, bounded: bool = True) -> Iterator[str]:
    """Say how `value` misses `space`; floats of another width pass, since they are converted.

    Unless `bounded`, those outside of a Box do too.
    """
    if isinstance(space, spaces.Dict):
        if not hasattr(value, "keys") or set(value.keys()) != set(space.spaces):
            found = sorted(map(str, value)) if hasattr(value, "keys") else _show(value)
            yield f"{name} has {found}, expected a dict with the keys {sorted(map(str, space.spaces))}."
            return
        for key, child in space.spaces.items():
            yield from mismatches(child, value[key], f"{name}[{key!r}]", bounded=bounded)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            yield f"{name} is {_show(value)}, expected a tuple of {len(space.spaces)}."
            return
        for index, child in enumerate(space.spaces):
            yield from mismatches(child, value[index], f"{name}[{index}]", bounded=bounded)
    else:
        yield from _array_mismatches(space, value, name, bounded)


def _array_mismatches(space: Space, value: Any, name: str, bounded: bool) -> Iterator[str]:
    try:
        array = np.asarray(value)
    except ValueError:  # ragged lists
        array = np.asarray(None)
    if not np.issubdtype(array.dtype, np.number) and array.dtype != np.bool_:
        yield f"{name} is {_show(value)}, expected numbers of {space}."
    elif array.shape != space.shape:
        yield f"{name} has the shape {array.shape}, expected {space.shape} of {space}."
    elif not np.isfinite(array).all():
        yield f"{name} has NaN or infinite values: {_show(value)}."
    elif isinstance(space, spaces.Box) and not bounded and np.issubdtype(space.dtype, np.floating):
        return
    elif isinstance(space, spaces.Box) and len(outside := np.argwhere((array < space.low) | (array > space.high))):
        at = tuple(outside[0])
        yield (
            f"{name}{list(map(int, at))} is {array[at]}, outside of [{space.low[at]}, {space.high[at]}] of the "
            "observation_space: widen its bounds or clip the observation."
        )
    elif np.issubdtype(array.dtype, np.floating) and not np.issubdtype(space.dtype, np.floating):
        yield f"{name} has the dtype {array.dtype}, expected {space.dtype} of {space}: fractions would be lost."
    elif not isinstance(space, spaces.Box) and not space.contains(array.astype(space.dtype)):
        yield f"{name} is {_show(value)}, which {space} does not contain."


def _type(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _show(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
