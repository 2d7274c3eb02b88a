"""Everything that exists only for speed: it computes the same as the ordinary code, in less time.

`fast_actor` and `fast_gradient` (choice.py) return None if there is no faster form; the caller then uses the ordinary
code. A test compares each entry of their tables with it.
"""

from reef.nn.fast.choice import fast_actor, fast_gradient

__all__ = ["fast_actor", "fast_gradient"]
