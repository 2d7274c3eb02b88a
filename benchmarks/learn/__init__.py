"""`python -m benchmarks.learn`: train every job document of the table to its reward, with three seeds."""
