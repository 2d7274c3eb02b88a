"""Commands that look into what is running."""
