"""What every HTTP server of policies does before it answers: listen, limit connections, ask for a token."""
