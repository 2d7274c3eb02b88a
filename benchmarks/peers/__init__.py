"""One script per peer: JSON arguments in, one JSON line out, run in the peer's own virtual environment."""
