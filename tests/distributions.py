"""Which installed distributions a requirement brings along."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(requirement: Requirement) -> set[str]:
    """Names of the distributions that a requirement brings along on this machine, itself included."""
    found: set[str] = set()
    open_ends = [requirement]
    while open_ends:
        asked = open_ends.pop()
        label = f"{canonicalize_name(asked.name)}[{','.join(sorted(asked.extras))}]"
        if label in found:
            continue
        found.add(label)
        for line in importlib.metadata.requires(asked.name) or ():
            inner = Requirement(line)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *asked.extras)):
                open_ends.append(inner)
    return {label.partition("[")[0] for label in found}
