"""What touches the world: the API server, heads, clocks. What is decided stands in the modules above this folder."""
