"""Policies that come and go while an algorithm trains."""
