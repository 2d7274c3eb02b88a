"""Pure functions on arrays [T, B]: returns, advantages, targets, running statistics."""
