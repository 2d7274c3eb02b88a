"""`python -m benchmarks.learn`: train every job document of this folder to its reward, with three seeds."""
