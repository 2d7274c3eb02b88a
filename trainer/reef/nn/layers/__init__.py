"""What networks are built of: activations, perceptrons, encoders of observations."""
