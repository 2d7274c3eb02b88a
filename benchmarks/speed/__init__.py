"""`python -m benchmarks.speed`: how fast Reef is beside its peers, measured in one run on one machine."""
