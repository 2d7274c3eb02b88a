"""The connection to the API server: who we are, how fast we may ask, and what comes back."""
