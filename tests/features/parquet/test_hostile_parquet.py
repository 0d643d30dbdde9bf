"""Hostile parquet files, through the real endpoint: false claims about pages, and invalid types."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from pyarrow.parquet import encryption

from tests.app.rows import bombs
from tests.app.rows.uploaded import CSV, SCHEMA, parquet, rows_sent
from tests.tables import each


def encrypted() -> bytes:
    """Return a parquet file whose footer is encrypted."""

    class Plain(encryption.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, _master: str) -> str:
            return key.hex()

    factory = encryption.CryptoFactory(lambda _config: Plain())
    chosen = encryption.EncryptionConfiguration(footer_key="k", column_keys={"k": ["age"]}, plaintext_footer=False)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), chosen)
    return parquet({"encryption_properties": properties})


def nested(depth: int) -> Any:
    kind = pa.int32()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return pa.nulls(2, kind)


PARQUETS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "an encrypted file": (encrypted, "input_invalid", "file"),
    "a footer of four gigabytes": (lambda: parquet()[:-8] + b"\xff\xff\xff\xffPAR1", "input_invalid", "file"),
    "a footer that reaches too far": (lambda: parquet()[:-8] + b"\xff\xff\x00\x00PAR1", "input_invalid", "file"),
    "a trillion rows": (lambda: bombs.with_num_rows(parquet(), 10**12), "upload_too_large", ""),
    "fewer rows than there are": (lambda: bombs.with_num_rows(parquet(), 1), "input_invalid", "file"),
    "a negative number of rows": (lambda: bombs.with_num_rows(parquet(), -1), "input_invalid", "file"),
    # pyarrow crashes the process if it reads such a chunk.
    "counts of levels that there are not": (
        lambda: bombs.with_footer(parquet(), b"\x25\x02\x18", b"\x25\x00\x18"),
        "input_invalid",
        "file",
    ),
    "a thousand levels": (lambda: parquet(note=nested(1000)), "input_invalid", "file"),
    "a column in a column": (lambda: parquet(age=nested(3)), "schema_invalid", "column age"),
    "times": (lambda: parquet(age=pa.array([1, 2], pa.timestamp("us"))), "schema_invalid", "column age"),
    "dates as subjects": (lambda: parquet(person=pa.array([1, 2], pa.date32())), "schema_invalid", "column person"),
    "bytes": (lambda: parquet(person=[b"ann-7319", b"bob-7319"]), "schema_invalid", "column person"),
    "no value": (lambda: parquet(age=[31, None]), "row_invalid", "line 2, column age"),
    "nothing but nulls": (lambda: parquet(person=pa.nulls(2)), "row_invalid", "line 1, column person"),
    "NaN": (lambda: parquet(age=[31, float("nan")]), "row_invalid", "line 2, column age"),
    "infinity": (lambda: parquet(age=[float("-inf"), 1.0]), "row_invalid", "line 1, column age"),
    "a subject of absurd length": (
        lambda: parquet(person=["7319" * 9000, "b"]),
        "row_invalid",
        "line 1, column person",
    ),
    "a column that is there twice": (
        lambda: bombs.with_footer(parquet(), b"note", b"work"),
        "schema_invalid",
        "column note",
    ),
    "a page for each value": (
        lambda: parquet(
            {"data_page_size": 1, "write_batch_size": 1, "write_statistics": False},
            **{name: [value] * 3000 for name, value in {"age": 31, "work": "state", "income": "low"}.items()},
            person=[f"p{number}" for number in range(3000)],
            note=[""] * 3000,
        ),
        "input_invalid",
        "file",
    ),
    "text that stands for more": (
        lambda: parquet({"use_dictionary": False, "column_encoding": {"person": "DELTA_BYTE_ARRAY"}}),
        "input_invalid",
        "file",
    ),
}


@each("case", PARQUETS)
def test_a_hostile_parquet_file_is_refused(refused: Callable[..., list[str]], case: str) -> None:
    """Files with false claims about pages, types that are neither text nor numbers, or missing values are refused."""
    make, code, place = PARQUETS[case]
    assert refused(code, make(), "rows.parquet")[:1] == ([place] if place else [])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_files_from_every_writer_are_read(
    send: Callable[..., httpx.Response], client: TestClient, version: str, codec: str
) -> None:
    """A file gives the same rows whatever its page version and compression, and whether it uses dictionaries or
    byte-stream-split floats."""
    options = {"data_page_version": version, "compression": codec, "write_page_checksum": True, "row_group_size": 1}
    plain = rows_sent(client, send(CSV.encode(), "rows.csv"))
    split = {"use_dictionary": False, "column_encoding": {"age": "BYTE_STREAM_SPLIT"}}
    for content in (parquet(options), parquet(options | split, age=[31.0, 42.0])):
        assert rows_sent(client, send(content, "rows.parquet")) == plain


def test_a_dotted_variant_of_a_used_column_is_refused(refused: Callable[..., list[str]]) -> None:
    """If a column `age` is used, an unused column `age.x` is refused, because Arrow would read it too, without any size
    limit."""
    schema = {"columns": SCHEMA["columns"] | {"age.x": {"role": "ignored"}}}
    content = parquet(**{"age.x": ["secret-4242", ""]})
    assert refused("schema_invalid", content, "rows.parquet", json.dumps(schema)) == ["column 6"]
