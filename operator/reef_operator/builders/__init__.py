"""The objects of a job, one module per kind: pure functions from the resolved document to Kubernetes objects."""
