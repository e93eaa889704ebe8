"""The sweeper of lazybo for Hydra: ``hydra/sweeper=lazybo``."""
