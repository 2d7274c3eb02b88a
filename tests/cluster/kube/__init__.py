"""A real single-node Kubernetes for tests, made of Debian's own packages: `python -m kube up`."""
