"""Games of the Arcade Learning Environment: their names, their frames and their lives."""
