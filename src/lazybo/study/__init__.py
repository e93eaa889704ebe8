"""Optuna studies: opened, read into a model, and sampled."""
