"""Names for the types that every layer speaks of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PolicyId = str
AgentId = str | int
RecurrentState = dict[str, Array]  # what a recurrent policy remembers of B columns, by name [B, ...]; else empty
Stats = dict[str, float]  # what a learner or an exploration reports, by name
State = dict[str, Any]  # nested dicts and lists of JSON values and numpy arrays: what a checkpoint can hold
Weights = dict[PolicyId, NDArray[np.float32]]  # one flat vector per policy, see reef.nn.flat

DEFAULT_POLICY: PolicyId = "default_policy"
ONLY_AGENT: AgentId = "agent0"  # the agent of an environment that has one
