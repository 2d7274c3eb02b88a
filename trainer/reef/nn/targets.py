"""Target networks: frozen copies that follow the trained network."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

from reef.nn.policies import Policy
from reef.types import State

P = TypeVar("P", bound=Policy)


class Target(Generic[P]):
    """A copy of a policy that moves towards it by `tau` once per `period` steps (Lillicrap et al. 2016, section 3).

    Steps are environment steps or gradient steps, as the caller of `follow` counts.
    """

    def __init__(self, source: P, *, tau: float, period: int) -> None:
        """With `tau` 1 every move is a full copy."""
        self.source, self.tau, self.period = source, tau, period
        self.network = copy.deepcopy(source)
        self.updated_at = 0  # steps

    def follow(self, step: int) -> None:
        """Move if a period has passed at this step."""
        if step - self.updated_at >= self.period:
            self.move()
            self.updated_at = step

    def move(self) -> None:
        """Move once."""
        self.network.flat.vector.lerp_(self.source.flat.vector, self.tau)

    def copy_source(self) -> None:
        """Copy the source completely."""
        self.network.flat.vector.copy_(self.source.flat.vector)

    def state(self) -> State:
        """The parameters, and the step of the last move."""
        return {"weights": self.network.flat.numpy(), "updated_at": self.updated_at}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.network.flat.load(state["weights"])
        self.updated_at = state["updated_at"]
