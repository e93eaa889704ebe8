"""The paper's experiments, tables and figures: ``python -m benchmarks.paper``."""
