"""Records as predictions encode them."""

from collections.abc import Sequence

import numpy.typing as npt

from lethe.encoding.rows import Features, Schema, checked_vectors, unit_rows


def encode_records(schema: Schema, records: Sequence[object]) -> Features:
    return unit_rows(schema.raw_records(records))


def encode_vectors(x: npt.ArrayLike, *, first_line: int | None = None) -> Features:
    """Return rows (b, d + 1) of norm <= 1, the bias last, for (b, d) vectors without a schema."""
    return unit_rows(checked_vectors(x, first_line=first_line))
