"""A file causes a warning if scaling each row to norm 1 loses information, and no warning otherwise."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from lethe.encoding.spread import Floats, Spread


def warnings(features: Floats) -> list[str]:
    return Spread.of(features).warnings({f"c{place}": slice(place, place + 1) for place in range(features.shape[1])})


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_dominating_columns_cause_a_warning(load: object) -> None:
    """A table in which one column dominates causes a warning that names the column. Once all columns are standardised,
    there is no warning."""
    features = load(return_X_y=True)[0]  # type: ignore[operator]
    (warning,) = warnings(features)
    largest = int(np.abs(features).mean(axis=0).argmax())
    assert f"c{largest} outweighs the rest" in warning or "longest row" in warning
    assert warnings(np.clip((features - features.mean(axis=0)) / features.std(axis=0), -3, 3)) == []


def test_constant_columns_are_named() -> None:
    """Columns with the same value in every row, such as pixels that are always black, are named in the warning."""
    features = load_digits(return_X_y=True)[0] / 16
    (warning,) = warnings(features)
    assert warning.startswith("The same in every row: c0, c32, c39.")


def test_uneven_norms_cause_a_warning() -> None:
    """Rows whose norms range over three orders of magnitude cause a warning."""
    random = np.random.default_rng(0)
    features = random.normal(size=(100, 3)) * 10.0 ** random.integers(0, 4, size=(100, 1))
    assert any("more than 100 times as long" in one for one in warnings(features))


def test_few_rows_cause_no_warning() -> None:
    """A table of fewer than twenty rows causes no warning."""
    assert warnings(np.ones((19, 2))) == []
    assert warnings(np.ones((20, 2))) != []


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_a_file_read_in_pieces_has_the_same_spread(cut: int, seed: int) -> None:
    """The spread of a file read in pieces equals the spread of the file read as a whole."""
    features = np.random.default_rng(seed).normal(size=(10, 3))
    whole, parts = Spread.of(features), Spread.of(features[:cut]).with_rows(Spread.of(features[cut:]))
    assert (whole.num_rows, whole.shortest, whole.longest) == (parts.num_rows, parts.shortest, parts.longest)
    for one, other in ((whole.low, parts.low), (whole.high, parts.high), (whole.total, parts.total)):
        np.testing.assert_allclose(one, other)
