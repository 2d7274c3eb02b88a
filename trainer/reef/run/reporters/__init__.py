"""What shows a run's results: files, TensorBoard, the console. Each is a `Reporter`."""
