"""``python -m lazybo`` is the lazybo command."""

from lazybo.cli import main

if __name__ == "__main__":
    main()
