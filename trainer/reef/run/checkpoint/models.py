"""The weights of the policies in a checkpoint, also as files of their own, which are read without Reef."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

import numpy as np
from safetensors.numpy import save_file

from reef.types import PolicyId, State, Weights

MODEL_FILE = r"model_[\w.~%-]+\.safetensors"


def weights_of(state: State, policies: Iterable[PolicyId]) -> Weights:
    """The stored weights of policies, with or without a learner; nothing of one that the checkpoint leaves out."""
    learned = {name: learner["weights"] for name, learner in state["learners"].items()}
    stored = learned | state.get("fixed", {})
    return {name: stored[name] for name in policies if name in stored}


def write_models(folder: Path, state: State) -> list[str]:
    """Write the parameters by name of every policy in the state of an algorithm; returns the names of the files.

    `safetensors.torch.load_file` reads one as a torch `state_dict`.
    """
    files = []
    for policy_id, vector in weights_of(state, state["networks"]).items():
        shapes = state["networks"][policy_id]["shapes"]
        parts = np.split(vector, [*accumulate(map(math.prod, shapes.values()))][:-1])
        named = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        files.append(model_file(policy_id))
        save_file(named, folder / files[-1])
    return files


def model_file(policy_id: PolicyId) -> str:
    """The name of the file of a policy, whatever its id is."""
    return f"model_{quote(policy_id, safe='')}.safetensors"
