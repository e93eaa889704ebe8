"""The tests; benchmarks use the spaces and servers that they make."""
