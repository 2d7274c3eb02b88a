"""300 jobs created at once: how fast the operator makes their objects, how late statuses are, what it costs."""
