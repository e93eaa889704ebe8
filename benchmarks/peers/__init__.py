"""Peers whose pins clash with ours: each is a program in an environment of its own (`make peers`).

They speak lines of JSON with `benchmarks.optimizers.Peer`, so a module here imports its peer and nothing of lazybo.
"""
