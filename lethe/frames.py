"""Frames of pandas, polars or Arrow, and how they are sent."""

import io
from typing import Any, Protocol, runtime_checkable

_INDEX = "__index_level_"
"""The beginning of the names that Arrow gives to an index of pandas, which is no column of the table."""


@runtime_checkable
class Frame(Protocol):
    """A frame of pandas, polars or Arrow: whatever hands over its columns by the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


def to_parquet(frame: Frame) -> io.BytesIO:
    """A frame as a parquet file in memory, as the gateway reads one."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(arrow(frame), file)
    file.seek(0)
    return file


def arrow(frame: Frame) -> Any:
    """The frame as an Arrow table, without the index that pandas has."""
    import pyarrow as pa

    table = pa.table(frame)
    return table.drop_columns([name for name in table.column_names if name.startswith(_INDEX)])
