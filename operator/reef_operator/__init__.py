"""The Kubernetes operator for `RLTrainingJob`."""
