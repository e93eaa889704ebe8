"""The model: a Gaussian process on a Cholesky factor that grows by rows."""
