"""What somebody may give as a number, for hypothesis."""

import math

import numpy as np
from hypothesis import strategies as st

EDGES = [0, -1, True, 10**400, -(10**400), 2**63, 2**64, 1e300, math.inf, -math.inf, math.nan, 5e-324, 1j, "1", None]
OF_NUMPY = [np.int8(2), np.uint64(2**63), np.float32(1.5), np.float64(math.inf), np.bool_(True)]
NUMBERS = st.one_of(st.sampled_from([*EDGES, *OF_NUMPY]), st.integers(), st.floats())
