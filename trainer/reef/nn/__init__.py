"""Networks: encoders chosen from the space, action distributions, policies, parameters as one flat vector."""
