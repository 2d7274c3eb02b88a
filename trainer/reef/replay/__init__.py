"""Replay: ring buffers of transitions, uniform or prioritized, filled with n-step transitions."""
