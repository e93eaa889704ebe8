"""``python -m lazybo.paper EXPERIMENT``."""

from lazybo.paper.command import main

main()
