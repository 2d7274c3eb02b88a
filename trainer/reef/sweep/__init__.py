"""Sweeps: which trials there are, how they stand, and their files. Ray Tune runs them: reef.distributed.sweep."""
