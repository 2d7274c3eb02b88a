"""Applications that bring their own loop: a server at which they ask for actions, and their client."""
