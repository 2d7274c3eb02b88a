"""Runs that are kept in an object store: the store itself, what is brought from it, and what is copied to it."""
