"""Records as predictions encode them."""

from collections.abc import Sequence

from lethe.encoding.rows import Features, Schema, unit_rows


def encode_records(schema: Schema, records: Sequence[object]) -> Features:
    return unit_rows(schema.raw_records(records))
