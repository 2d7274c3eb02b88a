"""Observations as arrays that a person can look at, before a network gets them."""
