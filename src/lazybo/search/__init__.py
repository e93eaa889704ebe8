"""The search: what to evaluate next, for a space and a model of it."""
