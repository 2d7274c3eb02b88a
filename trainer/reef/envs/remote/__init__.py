"""Environments that run in processes of their own."""
