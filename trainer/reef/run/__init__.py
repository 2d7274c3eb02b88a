"""Running an algorithm: iterations, evaluation, metrics, checkpoints, stopping and reporting."""
