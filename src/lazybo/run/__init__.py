"""A run: evaluations on any engine, recorded in a study."""
