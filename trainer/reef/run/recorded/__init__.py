"""Recorded episodes in a run: to learn from, and to evaluate by."""
