"""Rollout workers: the loop around the environments, exploration, observation filters, episodes."""
