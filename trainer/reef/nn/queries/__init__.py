"""What a person asks of a policy: its model, its action distribution, its actions and its weights."""
