"""The header by which a run's server tells who it is: another process at the same address has another identity."""

from __future__ import annotations

IDENTITY = "Reef-Identity"  # of /healthz
