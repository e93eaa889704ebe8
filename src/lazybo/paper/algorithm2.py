"""Algorithm 2 of the paper, the naive Cholesky factorisation: three nested loops, O(n³/6) multiply-adds.

As printed, except for two typos: line 6 assigns to K[i, j], and the second inner loop runs over k.
"""


def cholesky(k: list[list[float]]) -> list[list[float]]:
    """Overwrite ``k`` with its lower factor and return it."""
    n = len(k)
    for i in range(n):
        for j in range(i):
            for m in range(j):
                k[i][j] -= k[i][m] * k[j][m]
            k[i][j] /= k[j][j]
        for m in range(i):
            k[i][i] -= k[i][m] ** 2
        k[i][i] **= 0.5
    for i in range(n):
        for j in range(i + 1, n):
            k[i][j] = 0.0
    return k
