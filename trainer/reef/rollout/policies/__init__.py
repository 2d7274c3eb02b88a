"""The policies of a worker, and how they act where agents take turns."""
