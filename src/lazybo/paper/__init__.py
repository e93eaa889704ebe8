"""The experiments, tables and figures of the paper, repeated on the public interface: ``python -m lazybo.paper``."""
