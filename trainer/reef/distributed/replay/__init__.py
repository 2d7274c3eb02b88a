"""The replay memory of a run on Ray."""
