"""Rows with their original columns, read from an upload and kept as Arrow streams of a few thousand rows.

Each row has a random 128-bit token. The table's dataset contains only the tokens, as numbers, in slots that do not
depend on the file; its records name the people. A row is present if and only if its token is. Erasing a token from the
dataset, for a request or again after a restore, thus determines which of the table's rows are removed.
"""

import csv
import io
import secrets
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from app.features.parquet import readers
from app.rows.blocks import Block
from lethe.contract.problems import FieldError, InputInvalid
from lethe.features.trainers.contract import MAX_TABLE_BYTES

GROUP = "lethe_group"
TOKEN = "lethe_token"  # noqa: S105  the name of a column
BLOCK_ROWS = 4096
PARTS = 8
"""Number of 16-bit parts that make up a token, each a feature of the dataset."""
MAX_COLUMNS = 10_000
_UNITS = 2.0**16
_RANDOM = secrets.SystemRandom()


def _from_parquet(content: bytes) -> pa.Table:
    """Read a parquet file. Its pages are measured before Arrow unpacks them, and repeated texts before they are
    expanded for every row. Raises `ValueError` for a table that would be too large."""
    file = io.BytesIO(content)
    directory, metadata = readers.footer(file), pa.parquet.read_metadata(file)
    leaves = dict.fromkeys(range(metadata.num_columns), 1)
    if directory is None or 4 * len(leaves) * metadata.num_rows > MAX_TABLE_BYTES:
        raise ValueError("Expected a plain table of fewer values")
    if readers.unpacked_bytes(file, directory, leaves) > MAX_TABLE_BYTES:
        raise ValueError("Expected smaller pages")
    schema = metadata.schema.to_arrow_schema()
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    table = pa.parquet.read_table(file, read_dictionary=texts)
    parts = [part for name in texts for part in table.column(name).chunks]
    sizes = [pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() or 0 for part in parts]
    if sum(sizes) > MAX_TABLE_BYTES:
        raise ValueError("Expected shorter texts")
    return table.cast(schema)


def _from_csv(content: bytes) -> pa.Table:
    """Read a CSV file. Raises `ValueError` for too many columns, because each column takes ten kilobytes."""
    # Arrow refuses a first line that does not end in its first block.
    options = pa.csv.ReadOptions(block_size=2**20)
    beginning = io.TextIOWrapper(io.BytesIO(content[: options.block_size]), encoding="latin-1", newline="")
    if not 0 < len(next(filter(None, csv.reader(beginning)), [])) <= MAX_COLUMNS:
        raise ValueError(f"Expected 1 to {MAX_COLUMNS} columns")
    return pa.csv.read_csv(pa.BufferReader(content), options)


def _from_arrow(content: bytes) -> pa.Table:
    """Read an Arrow stream. Nothing in it is decompressed, and no offset or index may point outside its buffer. Raises
    `InputInvalid` for compressed buffers, and `ValueError` for too many columns."""
    if any(_is_compressed(message) for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(content))):
        raise _unusable("file", "expected an Arrow stream without compressed buffers")
    stream = pa.ipc.open_stream(pa.BufferReader(content))
    if len(stream.schema) > MAX_COLUMNS:
        raise ValueError(f"Expected at most {MAX_COLUMNS} columns")
    table = stream.read_all()
    table.validate(full=True)
    return table


def _is_compressed(message: pa.Message) -> bool:
    """Return True if a message is a record or dictionary batch with compressed buffers (Arrow's Message.fbs)."""
    content = message.metadata.to_pybytes()

    def number(place: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(content[place : place + size], "little", signed=signed)

    def place_of(table: int, field: int) -> int:
        offsets, entry = table - number(table, 4, signed=True), 4 + 2 * field
        return table + number(offsets + entry, 2) if entry < number(offsets, 2) else table

    def inner(table: int, field: int) -> int:
        place = place_of(table, field)
        return place + number(place, 4)

    batch = inner(number(0, 4), 2)
    if message.type == "dictionary":
        batch = inner(batch, 1)
    return message.type != "schema" and place_of(batch, 3) != batch


_READERS: dict[str, Callable[[bytes], pa.Table]] = {".csv": _from_csv, ".parquet": _from_parquet, ".arrow": _from_arrow}


def read(content: bytes, filename: str, subject_column: str) -> tuple[pa.Table, list[str]]:
    """Return the columns of an upload without the subject column, and the subject of each row.

    Raises:
        InputInvalid: if the file is unusable; the error quotes no value from the file.
    """
    ending = next((ending for ending in _READERS if filename.lower().endswith(ending)), None)
    if ending is None:
        raise _unusable("file", "expected a name that ends in .csv, .parquet or .arrow")
    try:
        table = _READERS[ending](content)
    except (pa.ArrowException, csv.Error, OSError, ValueError):
        raise _unusable(
            "file", f"expected a readable {ending} file with the same type throughout each column"
        ) from None
    if table.nbytes > MAX_TABLE_BYTES:
        raise _unusable("file", f"expected at most {MAX_TABLE_BYTES} bytes in memory")
    if len(set(table.column_names)) != table.num_columns or {GROUP, TOKEN} & set(table.column_names):
        raise _unusable("file", f"expected distinct column names, none of them {GROUP} or {TOKEN}")
    if subject_column not in table.column_names:
        raise _unusable("subject_column", "expected a column of the file")
    faults = [f"column {place + 1}" for place, field in enumerate(table.schema) if not _is_flat(field.type)]
    if faults:
        raise _unusable("file", f"expected numbers, texts, truth values and times; see {', '.join(faults[:20])}")
    subjects = table.column(subject_column).cast(pa.string()).to_pylist()
    if table.num_rows < 1 or any(not subject for subject in subjects):
        raise _unusable("subject_column", "expected at least one row, and a person in each")
    return table.drop_columns([subject_column]).replace_schema_metadata(None), subjects


def _is_flat(kind: pa.DataType) -> bool:
    flat = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    times = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_null)
    if pa.types.is_dictionary(kind):
        return _is_flat(kind.value_type)
    return any(is_of(kind) for is_of in (*flat, *times))


def _unusable(path: str, expected: str) -> InputInvalid:
    return InputInvalid("The table was not stored.", [FieldError(path, expected)])


def tokens(num_rows: int) -> npt.NDArray[np.uint16]:  # (num_rows, PARTS)
    """Draw one random token per row."""
    return np.frombuffer(secrets.token_bytes(2 * PARTS * num_rows), dtype=np.uint16).reshape(num_rows, PARTS)


def as_vectors(drawn: npt.NDArray[np.uint16], subjects: list[str]) -> bytes:
    """Return the tokens as an npz file for a dataset: vectors of numbers below 1, targets of 0, and the subjects."""
    file = io.BytesIO()
    np.savez(file, x=drawn / _UNITS, y=np.zeros(len(drawn)), subject=np.array(subjects, dtype=str))
    return file.getvalue()


def present(blocks: Iterable[Block]) -> set[bytes]:
    """Return the tokens in a dataset's blocks. Rows are stored scaled; their bias, originally 1, gives the scale."""
    tokens_present: set[bytes] = set()
    for block in blocks:
        rows = block.features[block.features.any(axis=1)].astype(np.float64)
        parts = np.rint(rows[:, :-1] / rows[:, -1:] * _UNITS)
        # Rows added to the dataset in another way hold no tokens.
        parts = parts[((parts >= 0) & (parts < _UNITS)).all(axis=1)]
        tokens_present.update(part.tobytes() for part in parts.astype(np.uint16))
    return tokens_present


def with_tokens(table: pa.Table, drawn: npt.NDArray[np.uint16], subjects: list[str]) -> pa.Table:
    """Return the table with a token column and a group column that holds one random number per person."""
    people = list(dict.fromkeys(subjects))
    numbers = np.frombuffer(secrets.token_bytes(8 * len(people)), dtype=np.uint64) >> np.uint64(1)
    of_person = dict(zip(people, numbers.tolist(), strict=True))
    groups = pa.array([of_person[subject] for subject in subjects], pa.int64())
    token = pa.array([row.tobytes() for row in drawn], pa.binary(2 * PARTS))
    return table.append_column(TOKEN, token).append_column(GROUP, groups)


def only(table: pa.Table, kept: set[bytes]) -> pa.Table:
    """Return a copy of the rows whose token is in `kept`, so that no other row stays in the result's memory."""
    mask = pa.array([token in kept for token in table.column(TOKEN).to_pylist()], pa.bool_())
    return _compact(table.filter(mask))


def in_blocks(table: pa.Table) -> list[pa.Table]:
    return [_compact(table.slice(first, BLOCK_ROWS)) for first in range(0, table.num_rows, BLOCK_ROWS)]


def _compact(table: pa.Table) -> pa.Table:
    """Return the table as one chunk, whose dictionaries contain only the values of its rows."""
    table = table.unify_dictionaries().combine_chunks()
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and table.num_rows:
            column = table.column(place).chunk(0)
            used = column.indices.drop_null().unique()
            indices = pc.index_in(column.indices, used).cast(field.type.index_type)
            values = column.dictionary.take(used)
            column = pa.DictionaryArray.from_arrays(indices, values, ordered=field.type.ordered)
            table = table.set_column(place, field, column)
    return table


def for_trainer(table: pa.Table, *, group_ids: bool) -> pa.Table:
    """Return the columns that a trainer sees."""
    return table.drop_columns([TOKEN] if group_ids else [TOKEN, GROUP])


def split(table: pa.Table, *, holdout: float) -> tuple[pa.Table, pa.Table]:
    """Return the training rows and the holdout rows. The holdout is a share of the people, drawn again each time from
    the system's randomness, with at least one person in each part if possible. If `holdout` is 0, it is empty."""
    people = table.column(GROUP).unique().to_pylist()
    number = min(max(1, round(holdout * len(people))), len(people) - 1) if holdout else 0
    drawn = pa.array(_RANDOM.sample(people, max(0, number)), pa.int64())
    is_held_out = pc.is_in(table.column(GROUP), drawn)
    return table.filter(pc.invert(is_held_out)), table.filter(is_held_out)


def mixed(tables: Sequence[pa.Table]) -> pa.Table:
    """Shuffle the rows of tables with the same schema into one chunk, so that positions reveal nothing about people."""
    # Chunks with separate dictionaries would also reveal it.
    joined = _compact(pa.concat_tables(tables))
    return joined.take(pa.array(_RANDOM.sample(range(joined.num_rows), joined.num_rows), pa.int64()))


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_bytes(content: bytes) -> pa.Table:
    """Return the table in an Arrow stream."""
    return pa.ipc.open_stream(pa.BufferReader(content)).read_all()
