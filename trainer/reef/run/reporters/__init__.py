"""Those who show a run's results: files, TensorBoard, the console. Each is a `Reporter`."""
