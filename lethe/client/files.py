"""Frames and files: converting pandas, polars and Arrow frames for sending, and writing long responses to files."""

import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

_INDEX = "__index_level_"
"""Prefix of the names that Arrow gives to a pandas index, which is not one of the table's columns."""


@runtime_checkable
class Frame(Protocol):
    """pandas, polars or Arrow frame: any object that exports its columns through the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


def to_parquet(frame: Frame) -> io.BytesIO:
    """Return a frame as an in-memory parquet file."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(arrow(frame), file)
    file.seek(0)
    return file


def arrow(frame: Frame) -> Any:
    """Return the frame as an Arrow table, without the pandas index."""
    import pyarrow as pa

    table = pa.table(frame)
    return table.drop_columns([name for name in table.column_names if name.startswith(_INDEX)])


@contextmanager
def opened(to: str | Path | BinaryIO) -> Iterator[BinaryIO]:
    """Yield the given file object, or a temporary file that replaces the file at the path once it is complete."""
    if not isinstance(to, str | Path):
        yield to
        return
    path = Path(to)
    # In the same folder, because `os.replace` cannot cross file systems.
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def write(to: str | Path | BinaryIO, pieces: Iterable[bytes]) -> None:
    """Write pieces to a file as they arrive."""
    with opened(to) as file:
        for piece in pieces:
            file.write(piece)
