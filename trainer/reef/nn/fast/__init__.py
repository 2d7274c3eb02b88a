"""Everything that exists for speed alone: it gives what the ordinary code gives, and sooner.

`fast_actor` and `fast_gradient` (choice.py) answer None where there is nothing faster; whoever asks then does it the
ordinary way. A test compares each entry of their tables with that.
"""

from reef.nn.fast.choice import fast_actor, fast_gradient

__all__ = ["fast_actor", "fast_gradient"]
