"""Algorithms by name, as import paths: a module is imported only when its algorithm is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reef.config.loading import load
from reef.errors import ConfigError, nearest

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig

ALGORITHMS: dict[str, str] = {
    "A2C": "reef.algorithms.a2c:A2C",
    "A3C": "reef.algorithms.a3c:A3C",
    "APEX": "reef.algorithms.apex:ApexDQN",
    "APEX_DDPG": "reef.algorithms.apex_ddpg:ApexDDPG",
    "APPO": "reef.algorithms.appo:APPO",
    "BC": "reef.algorithms.bc:BC",
    "CQL": "reef.algorithms.cql:CQL",
    "DDPG": "reef.algorithms.ddpg:DDPG",
    "DDPPO": "reef.algorithms.ddppo:DDPPO",
    "DQN": "reef.algorithms.dqn:DQN",
    "ES": "reef.algorithms.es:ES",
    "IMPALA": "reef.algorithms.impala:IMPALA",
    "IQL": "reef.algorithms.iql:IQL",
    "MARWIL": "reef.algorithms.marwil:MARWIL",
    "PG": "reef.algorithms.pg:PG",
    "PPO": "reef.algorithms.ppo:PPO",
    "SAC": "reef.algorithms.sac:SAC",
    "SimpleQ": "reef.algorithms.simple_q:SimpleQ",
    "TD3": "reef.algorithms.td3:TD3",
    "TQC": "reef.algorithms.tqc:TQC",
}


def algorithm_class(name: str) -> type[Any]:
    """Return the `Algorithm` of that name (any case), or of a "package.module:Class" path; ConfigError if unknown."""
    if ":" in name:
        found: type[Any] = load(name, what="algorithm")
        if not isinstance(getattr(found, "config_class", None), type):
            raise ConfigError(f"algorithm={name!r}: expected a subclass of reef.Algorithm that names its config_class.")
        return found
    exact = {known.upper(): known for known in ALGORITHMS}.get(name.upper())
    if exact is None:
        known = ", ".join(ALGORITHMS)
        raise ConfigError(f"algorithm={name!r} is unknown.{nearest(name, ALGORITHMS)} Known: {known}.")
    return load(ALGORITHMS[exact], what="algorithm")  # type: ignore[no-any-return]


def config_class(name: str) -> type[AlgorithmConfig]:
    """Return the settings class of that algorithm; ConfigError if unknown."""
    return algorithm_class(name).config_class  # type: ignore[no-any-return]


def stored_config(metadata: Mapping[str, Any]) -> AlgorithmConfig:
    """Return the settings in a checkpoint's metadata; ConfigError if the class that wrote it cannot be imported.

    Without its logger, which was for the results of that run, and may not be here.
    """
    settings = {key: value for key, value in metadata["config"].items() if not key.startswith("logger_")}
    return config_class(metadata.get("algorithm_class", metadata["algorithm"])).from_dict(settings)
