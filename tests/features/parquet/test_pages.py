"""Sizes in the headers of a parquet file."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.features.parquet import readers
from lethe.contract.problems import UploadTooLarge
from tests.app.rows import bombs


def written(folder: Path, **options: Any) -> Path:
    path = folder / "rows.parquet"
    count = 3000
    table = pa.table({"text": [f"p{row % 50}" for row in range(count)], "number": np.arange(count) / 7})
    pq.write_table(table, path, row_group_size=1000, data_page_size=2000, **options)
    return path


def content(path: Path) -> io.BytesIO:
    return io.BytesIO(path.read_bytes())


def footer_of(path: Path) -> Any:
    found = readers.footer(content(path))
    assert found is not None
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_pages_unpack_to_the_recorded_size(tmp_path: Path, version: str, codec: str, dictionary: bool) -> None:
    """The pages unpack to the size that the writer recorded, minus less than 100 bytes per page for headers."""
    path = written(tmp_path, data_page_version=version, compression=codec, use_dictionary=dictionary)
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for column in (0, 1):
        noted = sum(group.column(column).total_uncompressed_size for group in groups)
        unpacked = readers.unpacked_bytes(content(path), footer_of(path), {column: 1})
        assert 0 < unpacked < noted < unpacked + 100 * 30
    both = readers.unpacked_bytes(content(path), footer_of(path), {0: 1, 1: 1})
    assert both == sum(readers.unpacked_bytes(content(path), footer_of(path), {column: 1}) for column in (0, 1))


@pytest.mark.parametrize(
    ("field", "value"),
    [(5, 999), (5, 1001), (7, 10), (7, 2**40), (7, -1), (9, 0), (9, 2**40), (9, -5)],
    ids=lambda number: f"{number}",
)
def test_a_chunk_that_is_not_as_described_is_an_error(tmp_path: Path, field: int, value: int) -> None:
    """A chunk is refused if the footer misstates its number of values (field 5), length (field 7) or position (field
    9)."""
    path = written(tmp_path, use_dictionary=False)
    footer = footer_of(path)
    footer[4][1][1][1][3][field] = value
    with pytest.raises((ValueError, LookupError, TypeError)):
        readers.unpacked_bytes(content(path), footer, {0: 1, 1: 1})


def test_chunks_may_not_share_bytes(tmp_path: Path) -> None:
    """A footer that refers to the same chunk a hundred times is refused, because chunks must not share bytes."""
    path = written(tmp_path)
    footer = footer_of(path)
    footer[4] = footer[4][:1] * 100
    footer[3] = 100 * 1000
    with pytest.raises(ValueError, match="none of them shared"):
        readers.unpacked_bytes(content(path), footer, {0: 1, 1: 1})


def test_row_groups_contain_every_row(tmp_path: Path) -> None:
    """A file is refused if its row groups contain fewer rows than the footer claims."""
    path = written(tmp_path)
    footer = footer_of(path)
    footer[3] += 1
    with pytest.raises(ValueError, match="as many rows"):
        readers.unpacked_bytes(content(path), footer, {0: 1})


def test_an_unreadable_footer_is_reported(tmp_path: Path) -> None:
    """An encrypted footer, an overlong footer and other unreadable footers are each reported with a specific error."""
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"PARE")
    assert readers.footer(content(path)) is None
    path.write_bytes(b"PAR1" + bytes(5_000_000) + struct.pack("<I", 5_000_000) + b"PAR1")
    with pytest.raises(UploadTooLarge):
        readers.footer(content(path))
    for broken in (b"", b"PAR1", whole[:-4], whole[:-8] + b"\xff\xff\xff\xffPAR1", whole[:-8] + bytes(4) + b"PAR1"):
        path.write_bytes(broken)
        with pytest.raises((ValueError, EOFError, LookupError)):
            footer_of(path)[4]


def test_a_repeated_field_is_an_error(tmp_path: Path) -> None:
    """A footer in which a field occurs twice is refused, because readers disagree on which value counts."""
    path = written(tmp_path)
    old = b"\x16" + bombs.varint(3000) + b"\x19\x3c"  # the number of rows, then the groups
    path.write_bytes(bombs.with_footer(path.read_bytes(), old, old[:-2] + b"\x06\x06\x02" + old[-2:]))
    with pytest.raises(ValueError, match="once"):
        readers.footer(content(path))
