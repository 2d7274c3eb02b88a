"""Learning from recorded episodes, without an environment."""
