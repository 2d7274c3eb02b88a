"""What the setting `input_` may be: an environment that is played, recorded episodes, or applications."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from reef.config.algorithm_config import AlgorithmConfig

SAMPLER, POLICY_SERVER = "sampler", "policy_server"
InputUse = Literal["none", "possible", "needed"]  # what an algorithm can do with recorded episodes
FOR_INPUT = {"input_config": {}, "actions_in_input_normalized": False, "shuffle_buffer_size": 0}  # say how to read
PATH_OF_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_function(given: Any) -> bool:
    """Whether a value of `input_` is a function of the user's own, or its path; a file of such a name comes first."""
    if isinstance(given, str):
        return PATH_OF_FUNCTION.fullmatch(given) is not None and not Path(given).exists()
    return callable(given)


@dataclass(frozen=True)
class IOContext:
    """What a function in the setting `input_` is called with."""

    config: AlgorithmConfig
    worker_index: int = 0  # 0 in the algorithm's process, where recorded episodes are read; other workers count from 1
    worker: Any = None  # the rollout worker that a policy server is for

    @property
    def input_config(self) -> dict[str, Any]:
        """The setting of that name."""
        found: dict[str, Any] = self.config.input_config
        return dict(found)
