"""Building blocks of networks: activations, perceptrons, memories, encoders of observations."""
