"""Interprets what was observed: pods, document and heads' reports. Pure functions that tolerate malformed content."""
