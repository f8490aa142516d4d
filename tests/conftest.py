import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "perturbmap",
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("perturbmap")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20180806)
