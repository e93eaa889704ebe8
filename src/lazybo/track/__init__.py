"""Trials in other tools while they run: MLflow, TensorBoard, Weights & Biases. Each needs its own extra."""
