"""``python -m benchmarks.paper EXPERIMENT``."""

from benchmarks.paper.command import main

main()
