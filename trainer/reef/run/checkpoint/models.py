"""The weights of the policies in a checkpoint, also as torch files, which are read without Reef."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from reef.types import PolicyId, State, Weights

MODEL_FILE = r"model_[\w.~%-]+\.pt"


def weights_of(state: State, policies: Iterable[PolicyId]) -> Weights:
    """The stored weights of policies, with or without a learner; nothing of one that the checkpoint leaves out."""
    learned = {name: learner["weights"] for name, learner in state["learners"].items()}
    stored = learned | state.get("fixed", {})
    return {name: stored[name] for name in policies if name in stored}


def write_models(folder: Path, state: State) -> list[str]:
    """Write the parameters of every policy in the state of an algorithm as a torch `state_dict`; returns their names.

    `torch.load(file, weights_only=True)` reads one.
    """
    import torch  # only where it is asked for: a checkpoint itself needs none

    names = []
    for policy_id, vector in weights_of(state, state["networks"]).items():
        shapes = state["networks"][policy_id]["shapes"]
        parts = torch.split(torch.from_numpy(vector.copy()), [math.prod(shape) for shape in shapes.values()])
        named = {name: part.reshape(shape).clone() for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        names.append(model_file(policy_id))
        torch.save(named, folder / names[-1])
    return names


def model_file(policy_id: PolicyId) -> str:
    """The name of the torch file of a policy, whatever its id is."""
    return f"model_{quote(policy_id, safe='')}.pt"
