"""The search: what to evaluate next in a space."""
