"""The arrays that everything is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int32]
Mask = NDArray[np.bool_]
Offsets = NDArray[np.int64]
