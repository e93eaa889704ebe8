"""What the paper prints: its tables, single runs each, as (iteration, value) where the best value improved."""

Steps = tuple[tuple[int, float], ...]

# Table 1, by seed points and method.
LEVY: dict[int, dict[str, Steps]] = {
    1: {
        "naive": ((82, -5.23), (126, -4.5), (386, -4.3), (479, -4.1)),
        "lazy": ((103, -1.3), (139, -0.77), (156, -0.33), (297, -0.18), (318, -0.14), (611, -0.01)),
    },
    100: {
        "naive": ((168, -0.52), (169, -0.41), (170, -0.30), (232, -0.04)),
        "lazy": ((648, -0.95), (673, -0.61), (731, -0.23), (838, -0.19), (972, -0.18), (975, -0.09)),
        "lag3": ((192, -0.21),),
    },
}
# Table 2.
LENET: dict[str, Steps] = {
    "naive": (
        *((13, 0.25), (15, 0.67), (24, 0.83), (26, 0.88)),
        *((63, 0.90), (198, 0.93), (239, 0.96), (732, 0.97)),
    ),
    "lazy": ((1, 0.11), (4, 0.12), (11, 0.96), (168, 0.97)),
}
# Tables 3 and 4, by method and workers.
RESNET: dict[tuple[str, int], Steps] = {
    ("naive", 1): ((16, 0.74), (26, 0.75), (43, 0.77), (50, 0.78), (176, 0.79)),
    ("lazy", 1): ((24, 0.77), (53, 0.78), (62, 0.79), (117, 0.80), (237, 0.81)),
    ("lazy", 20): ((1, 0.11), (16, 0.51), (21, 0.77), (35, 0.79), (61, 0.80)),
}
# The factorisations of all iterations together, naive over lazy (section 4.1); 176 steps against 35 (section 4.4).
FACTORISATION_RATIO = 162
PARALLEL_RATIO = 5
