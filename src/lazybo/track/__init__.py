"""Trials in other tools while they run: MLflow, TensorBoard, Weights & Biases. Each needs its own extra."""

from lazybo.track.tracker import Tracker

__all__ = [
    "Tracker",  # a callback that also gets every reported value: the base of your own
]
