"""Environments that are drawn while a worker samples: as videos, or in a window."""
