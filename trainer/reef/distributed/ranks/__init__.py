"""Rollout workers that learn together, without a central learner."""
