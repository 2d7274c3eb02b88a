"""Acting and recording where agents do not act in every step."""
