"""A finished policy, used without training: actions over HTTP, and files that other programs run."""
