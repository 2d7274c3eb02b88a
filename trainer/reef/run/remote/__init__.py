"""Runs that are kept in an object store: what is brought from it, and what is copied to it."""
