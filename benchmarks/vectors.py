"""Rows of vectors without a schema, as an upload of an npz file encodes them."""

import numpy.typing as npt

from lethe.encoding.rows import Features, checked_vectors, unit_rows


def encode_vectors(x: npt.ArrayLike, *, first_line: int | None = None) -> Features:
    """Return rows (b, d + 1) of norm <= 1, the bias last, for (b, d) vectors. Faults are those of `checked_vectors`."""
    return unit_rows(checked_vectors(x, first_line=first_line))
