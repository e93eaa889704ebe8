"""Peers whose requirements conflict with ours: each is a program in its own environment (`make peers`).

They exchange lines of JSON with `benchmarks.optimizers.Peer`, so a module here imports its peer and nothing of lazybo.
"""
