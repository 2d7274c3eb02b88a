"""The modules and names by which older programs use RLlib's algorithms: `import reef.agents.ppo as ppo`.

A module has the trainers of a family, such as `ppo.PPOTrainer`, which is `reef.algorithms.ppo.PPO`, with their
configurations, and the settings of the first one as `ppo.DEFAULT_CONFIG`. All are made when they are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from reef.algorithms.registry import algorithm_class
from reef.config.aliases import translate

FAMILIES: dict[str, dict[str, str]] = {  # by module: the names of algorithms by those of their trainers
    "a3c": {"A3CTrainer": "A3C", "A2CTrainer": "A2C"},
    "cql": {"CQLTrainer": "CQL"},
    "ddpg": {"DDPGTrainer": "DDPG", "TD3Trainer": "TD3", "ApexDDPGTrainer": "APEX_DDPG"},
    "dqn": {"DQNTrainer": "DQN", "SimpleQTrainer": "SimpleQ", "ApexTrainer": "APEX"},
    "es": {"ESTrainer": "ES"},
    "impala": {"ImpalaTrainer": "IMPALA"},
    "marwil": {"MARWILTrainer": "MARWIL", "BCTrainer": "BC"},
    "pg": {"PGTrainer": "PG"},
    "ppo": {"PPOTrainer": "PPO", "APPOTrainer": "APPO", "DDPPOTrainer": "DDPPO"},
    "sac": {"SACTrainer": "SAC"},
}


class DefaultConfig(dict[str, Any]):
    """All settings of an algorithm, by key; an older spelling sets the setting that it means."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().update(translate({key: value}))

    def update(self, *others: Mapping[str, Any], **settings: Any) -> None:  # type: ignore[override]
        """Set several."""
        for key, value in dict(*others, **settings).items():
            self[key] = value

    def copy(self) -> DefaultConfig:
        """The same settings, to be changed."""
        return DefaultConfig(self)


class Family(ModuleType):
    """The module of a family of algorithms."""

    def __getattr__(self, name: str) -> Any:
        trainers = FAMILIES[self.__name__.rpartition(".")[2]]
        if name == "DEFAULT_CONFIG":
            first = algorithm_class(next(iter(trainers.values())))
            self.DEFAULT_CONFIG = DefaultConfig(first.config_class().to_dict())
            return self.DEFAULT_CONFIG
        if name in trainers:
            return algorithm_class(trainers[name])
        for known in () if name.startswith("_") else trainers.values():
            found = algorithm_class(known)
            if name in (found.__name__, found.config_class.__name__):
                return found if name == found.__name__ else found.config_class
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}: it has {', '.join(self.__dir__())}")

    def __dir__(self) -> list[str]:
        return [*FAMILIES[self.__name__.rpartition(".")[2]], "DEFAULT_CONFIG"]


for _name in FAMILIES:
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = Family(f"{__name__}.{_name}", __doc__)
