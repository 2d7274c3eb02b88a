"""What runs in the pods of a cluster: the head, the workers, and what both report to the outside."""
