"""Timing on a noisy machine: contestants alternate, and the median counts."""

import time
from collections.abc import Callable, Mapping
from statistics import median


def alternate(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each contestant over ``rounds``; each runs once a round. The first round is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if round_number:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}
