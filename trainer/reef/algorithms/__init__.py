"""One file per algorithm, and a registry of names."""
