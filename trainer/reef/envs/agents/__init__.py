"""Environments of several agents as columns of their policies."""
