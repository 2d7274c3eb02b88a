"""Episodes that applications play: how they are recorded, and wait to be learned from."""
