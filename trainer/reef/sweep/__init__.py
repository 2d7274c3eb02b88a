"""Sweeps: which trials there are, their state and their files. Ray Tune runs them: reef.tune.sweep."""
