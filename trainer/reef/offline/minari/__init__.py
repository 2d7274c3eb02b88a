"""Data sets of Minari, read from their files, without its package."""
