"""Pure functions on arrays [T, B]: advantages, targets, losses, running statistics."""
