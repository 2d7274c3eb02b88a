"""Environments whose task changes while a policy is trained."""
