"""The process of a run: who it is, whether it hangs, and the load of its machine."""
