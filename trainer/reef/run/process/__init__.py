"""The process of a run: its identity, whether it hangs, and the load of its machine."""
