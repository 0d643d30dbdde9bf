import mpmath
import pytest


@pytest.fixture
def digits():
    with mpmath.workdps(80):
        yield
