"""Rows get their slots by a uniformly random permutation, in memory or through a file."""

from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from app.rows import uploads
from app.rows.uploads import Shuffle

PLACE = np.dtype([("place", "<i8")])


def order_of(folder: Path, pieces: list[int], *, parts: int, held_bytes: int = uploads.HELD_BYTES) -> list[int]:
    """Return the order in which rows 0, 1, ... leave a shuffle if they enter it in pieces of the given sizes."""
    with Shuffle(folder, most_bytes=parts, part_bytes=1, held_bytes=held_bytes) as rows:
        first = 0
        for size in pieces:
            rows.add(np.arange(first, first + size).view(PLACE))
            first += size
        return [place for some in rows.shuffled() for place in some["place"].tolist()]


@given(pieces=st.lists(st.integers(0, 50), max_size=10), parts=st.integers(1, 20), held_bytes=st.sampled_from([0, 200]))
def test_a_shuffle_returns_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], parts: int, held_bytes: int
) -> None:
    """A shuffle returns every row exactly once, however much of it was written to the file."""
    order = order_of(tmp_path_factory.getbasetemp(), pieces, parts=parts, held_bytes=held_bytes)
    assert sorted(order) == list(range(sum(pieces)))


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "held_bytes"), [(1, 1000), (3, 1000), (3, 10)])
def test_all_orders_are_equally_likely(tmp_path: Path, parts: int, held_bytes: int) -> None:
    """Shuffling four rows, added two at a time, yields each of the 24 orders equally often, whether the rows are in
    memory or in the file. The chi-squared test has a false-alarm rate below one in ten million."""
    times = 2400
    seen = Counter(tuple(order_of(tmp_path, [2, 2], parts=parts, held_bytes=held_bytes)) for _ in range(times))
    assert seen.keys() <= set(permutations(range(4)))
    counts = [seen[order] for order in permutations(range(4))]
    assert stats.chisquare(counts).statistic < stats.chi2.isf(1e-9, 23)


def test_a_shuffle_creates_no_named_file(tmp_path: Path) -> None:
    """A shuffle's temporary file is unnamed, so that it never appears in the folder. A small upload needs no file at
    all."""
    with Shuffle(tmp_path / "nowhere", most_bytes=2**30) as rows:
        rows.add(np.arange(1000).view(PLACE))
        assert len(list(rows.shuffled())) > 1
    with Shuffle(tmp_path, most_bytes=10, held_bytes=0) as rows:
        rows.add(np.arange(1000).view(PLACE))
        assert list(tmp_path.iterdir()) == []
