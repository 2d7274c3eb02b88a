"""Which environments are Atari games, and what Gymnasium knows of the name of an environment."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from reef.config import AlgorithmConfig
from reef.errors import nearest

# The names of Atari games in Gym: what is observed, how frames are skipped, and the version.
ATARI_ID = re.compile(r"(?P<game>[A-Z]\w*?)(?P<ram>-ram)?(?P<skip>Deterministic|NoFrameskip)?-(?P<version>v[04])")
REPEATED = {"v0": 0.25, "v4": 0.0}
PACKAGE = "ale_py"


def registered(env: object) -> gym.envs.registration.EnvSpec | None:
    """The registration of a Gymnasium id, or None for anything else.

    A module before a colon, "module:Id-v0", is imported first, as it may register the id; so is ale-py for a game.
    """
    if not isinstance(env, str):
        return None
    if env in gym.registry:
        return gym.registry[env]
    module, colon, name = env.rpartition(":")
    if not colon and (env.startswith("ALE/") or ATARI_ID.fullmatch(env)):
        module = PACKAGE
    if module:
        try:
            importlib.import_module(module)
        except Exception:  # `load` says what is wrong with the module
            return None
    return gym.registry.get(name)


def is_atari(config: AlgorithmConfig, env: Any = None) -> bool:
    """Whether the environment is an Atari game: as the settings say, else by `env` itself or by its registration."""
    if config.is_atari is not None:
        return bool(config.is_atari)
    spec = registered(config.env)
    by_name = spec is not None and str(spec.entry_point).startswith((PACKAGE, "shimmy.atari"))
    return by_name or hasattr(getattr(env, "unwrapped", None), "ale")


def arguments(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """`env_config` as a registered environment takes it: a document has a list where a game wants a pair."""
    given = dict(env_config)
    if isinstance(given.get("frameskip"), list):
        given["frameskip"] = tuple(given["frameskip"])
    return given


def atari_hint(env: str) -> str:
    """What to write in place of an unknown id of an Atari game, with the package that it needs; "" for another name."""
    found = ATARI_ID.fullmatch(env)
    old = found is not None and bool(found["ram"] or found["skip"])
    if not (env.startswith("ALE/") or old):
        return ""
    needs = "" if importlib.util.find_spec(PACKAGE) else ": `pip install 'reef[atari]'`, and"
    settings = ""
    if found is not None and (found["ram"] or found["skip"] == "Deterministic"):
        frames = {"Deterministic": 3 if found["game"] == "SpaceInvaders" else 4, "NoFrameskip": 1, None: [2, 5]}
        config = {"frameskip": frames[found["skip"]], "repeat_action_probability": REPEATED[found["version"]]}
        settings = f" with env_config={config | ({'obs_type': 'ram'} if found['ram'] else {})}"
        env = f"ALE/{found['game']}-v5"
    elif not needs:
        return nearest(env, gym.registry)
    return f" It is an Atari game{needs or ':'} use {env!r}{settings}."
