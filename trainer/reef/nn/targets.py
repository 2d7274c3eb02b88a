"""Target networks: frozen copies that follow what is trained."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

from reef.nn.policies import Policy
from reef.types import State

P = TypeVar("P", bound=Policy)


class Target(Generic[P]):
    """A copy of a policy that moves towards it by `tau` once every `period` steps (Lillicrap et al. 2016, section 3).

    Steps are those of the environment or gradient steps, as whoever calls `follow` counts.
    """

    def __init__(self, source: P, *, tau: float, period: int) -> None:
        """`tau` 1 copies it."""
        self.source, self.tau, self.period = source, tau, period
        self.network = copy.deepcopy(source)
        self.updated_at = 0  # steps

    def follow(self, step: int) -> None:
        """Move when that is due after so many steps."""
        if step - self.updated_at >= self.period:
            self.move()
            self.updated_at = step

    def move(self) -> None:
        """Move once."""
        self.network.flat.vector.lerp_(self.source.flat.vector, self.tau)

    def copy_source(self) -> None:
        """Become equal to the source."""
        self.network.flat.vector.copy_(self.source.flat.vector)

    def state(self) -> State:
        """The parameters, and when they moved last."""
        return {"weights": self.network.flat.numpy(), "updated_at": self.updated_at}

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        self.network.flat.load(state["weights"])
        self.updated_at = state["updated_at"]
