"""Replay: rings of transitions, uniform or prioritized, and the n-step sums that fill them."""
