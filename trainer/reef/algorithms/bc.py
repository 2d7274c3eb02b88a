"""Behaviour cloning (Pomerleau 1989): MARWIL that imitates all recorded actions alike."""

from __future__ import annotations

from typing import ClassVar

from reef.algorithms.marwil import MARWIL, MARWILConfig
from reef.config import default


class BCConfig(MARWILConfig):
    """Settings of BC."""

    algorithm: ClassVar[str] = "BC"
    algorithm_class: ClassVar[str] = "reef.algorithms.bc:BC"

    beta: float = default(0.0)


class BC(MARWIL):
    """As MARWIL, with other settings."""

    config_class = BCConfig
