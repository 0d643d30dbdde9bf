"""Training tables: the accepted files, and the rows kept."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from fastapi.testclient import TestClient

from app.features.trainers import columns
from app.installations import Installation
from app.rows.blocks import Block
from lethe.contract.problems import InputInvalid
from lethe.encoding.rows import unit_rows
from lethe.features.identities.contract import ADDRESSES
from tests.features.trainers.conftest import PEOPLE, arrow

New = Callable[..., dict[str, Any]]


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as an Arrow stream, optionally with compressed buffers."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("filename", "content"),
    [
        ("a.csv", b"person,age\nu1,3\nu2,4\n"),
        ("a.parquet", parquet(pa.table({"person": ["u1", "u2"], "age": [3, 4]}))),
        ("A.ARROW", columns.to_bytes(pa.table({"person": ["u1", "u2"], "age": [3, 4]}))),
    ],
)
def test_formats_give_the_same_columns(filename: str, content: bytes) -> None:
    """CSV, Parquet and Arrow files give the same columns, without the subject column."""
    table, subjects = columns.read(content, filename, "person")
    assert (table.to_pydict(), subjects) == ({"age": [3, 4]}, ["u1", "u2"])


ENCODED = pa.array(["a"] * 1000).dictionary_encode()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize(
    "column", [pa.nulls(1000), pa.array([0.0] * 1000), ENCODED], ids=["null", "numbers", "encoded"]
)
def test_compressed_buffers_are_refused_unopened(compression: str, column: pa.Array) -> None:
    """An Arrow stream with compressed buffers is refused with a specific error before any buffer is decompressed. The
    same table is accepted if it is not compressed."""
    table = pa.table({"person": pa.array(range(1000)).cast(pa.string()), "x": column})
    columns.read(stream(table), "a.arrow", "person")
    with pytest.raises(InputInvalid) as refused:
        columns.read(stream(table, compression), "a.arrow", "person")
    assert refused.value.errors[0].message == "expected an Arrow stream without compressed buffers"


def test_a_compressed_dictionary_is_refused() -> None:
    """An Arrow stream in which only a dictionary is compressed is refused with the same error as one with compressed
    buffers."""
    schema = pa.schema({"person": pa.string(), "x": ENCODED.type})
    table = pa.table({"person": ["u"] * 1000, "x": ENCODED}, schema=schema)
    messages = {
        (compression, message.type): message
        for compression in (None, "zstd")
        for message in pa.ipc.MessageReader.open_stream(stream(table, compression))
    }
    parts = [messages[None, "schema"], messages["zstd", "dictionary"], messages[None, "record batch"]]
    with pytest.raises(InputInvalid) as refused:
        columns.read(b"".join(part.serialize().to_pybytes() for part in parts), "a.arrow", "person")
    assert refused.value.errors[0].message == "expected an Arrow stream without compressed buffers"


@pytest.mark.parametrize("offset", [4096, 2**30, -4096])
def test_text_offsets_outside_their_buffer_are_refused(offset: int) -> None:
    """Text offsets that point outside their buffer are refused, because otherwise the table would contain parts of the
    gateway's memory."""
    content = stream(pa.table({"person": ["p1", "p2", "p3"], "x": ["abcdefgh", "ijklmnop", "qrstuvwx"]}))
    offsets = np.array([0, 8, 16, 24], dtype="<i4")
    assert content.count(offsets.tobytes()) == 1
    forged = np.array([offset, 8, 16, 24] if offset < 0 else [0, 8, 16, offset], dtype="<i4")
    with pytest.raises(InputInvalid):
        columns.read(content.replace(offsets.tobytes(), forged.tobytes()), "a.arrow", "person")


def test_indices_beyond_a_dictionary_are_refused() -> None:
    """Indices beyond the end of their dictionary are refused."""
    codes = pa.array([0, 1, 1, 0], pa.int32())
    encoded = pa.DictionaryArray.from_arrays(codes, pa.array(["aa", "bb"]))
    content = stream(pa.table({"person": ["p1", "p2", "p3", "p4"], "x": encoded}))
    forged = content.replace(np.array(codes).tobytes(), np.array([0, 1 << 28, 1, 0], dtype="<i4").tobytes())
    assert forged != content
    with pytest.raises(InputInvalid):
        columns.read(forged, "a.arrow", "person")


@pytest.mark.parametrize("header", ["person{}", "\r\n\n{}person", '"per\nson"{}', 'person,a"b{}'])
def test_the_number_of_columns_is_bounded_before_the_table_is_built(header: str) -> None:
    """A CSV file whose header names more than 10,000 columns, whatever its line endings, is refused before any column
    is allocated."""
    wide = header.format("," * columns.MAX_COLUMNS).encode()
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(InputInvalid) as refused:
        columns.read(wide + b"\n1" + b"," * columns.MAX_COLUMNS, "a.csv", "person")
    assert "readable .csv" in refused.value.errors[0].message
    assert pa.default_memory_pool().max_memory() == before


def test_the_columns_of_an_arrow_stream_are_limited() -> None:
    """An Arrow stream with more than 10,000 columns is refused."""
    table = pa.table({"person": ["u"], **{f"c{place}": [1] for place in range(columns.MAX_COLUMNS - 1)}})
    assert columns.read(stream(table), "a.arrow", "person")[0].num_columns == columns.MAX_COLUMNS - 1
    with pytest.raises(InputInvalid):
        columns.read(stream(table.append_column("more", pa.array([1]))), "a.arrow", "person")


@pytest.mark.parametrize(
    ("filename", "content", "path"),
    [
        ("a.xlsx", b"", "file"),
        ("a.csv", b"", "file"),
        ("a.parquet", b"PAR1 secret-value PAR1", "file"),
        ("a.csv", b"person,age\nu1,secret-value,3\n", "file"),
        ("a.csv", b"who,age\nu1,3\n", "subject_column"),
        ("a.csv", b"person,age\n,3\n", "subject_column"),
        ("a.csv", b"person,age\n", "subject_column"),
        ("a.csv", b"person,age,age\nu1,3,4\n", "file"),
        ("a.csv", b"person,lethe_group\nu1,3\n", "file"),
        ("a.parquet", parquet(pa.table({"person": ["u1"], "nested": [[1]]})), "file"),
    ],
)
def test_unusable_files_are_refused(filename: str, content: bytes, path: str) -> None:
    """A file is refused if it has an unsupported format, is damaged, names no subjects or has nested columns. The error
    does not quote the file's contents."""
    with pytest.raises(InputInvalid) as refused:
        columns.read(content, filename, "person")
    assert [fault.path for fault in refused.value.errors] == [path]
    assert "secret-value" not in str(refused.value.errors)


def test_tokens_survive_the_encoding_of_rows() -> None:
    """The random token drawn for each row can be recovered exactly from the row's encoded features, whatever their
    scale. Null rows have no token."""
    drawn = columns.tokens(2000)
    features = unit_rows(drawn / 65536)
    features[7] = 0
    block = Block(number=0, first=0, features=features, labels=np.zeros((2000, 1), dtype="<i4"))
    assert columns.present([block]) == {row.tobytes() for place, row in enumerate(drawn) if place != 7}


def test_suppressed_people_are_left_out(
    gateway: TestClient, new_table: New, new_trainer: New, train: Callable[[], int], names: Any, forget: New
) -> None:
    """A suppressed person's rows are refused or, if the caller requests it, left out of both the table and the training
    data."""
    forget("p3")
    files = {"file": ("people.arrow", arrow())}
    answer = gateway.post("/v1/training-tables", data={"name": "t", "subject_column": "subject"}, files=files)
    assert (answer.status_code, answer.json()["code"]) == (409, "subject_suppressed")
    table = new_table(suppressed="skip")
    assert table["num_rows"] == 2 * PEOPLE - 2
    trainer = new_trainer(table["id"])
    train()
    assert names(trainer["id"]) == {f"np{i}" for i in range(PEOPLE)} - {"np3"}


def test_one_retraining_serves_two_people(
    gateway: TestClient,
    installation: Installation,
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    work: Callable[[], int],
    names: Callable[[str], set[str]],
    forget: New,
    get: Callable[[str], Any],
) -> None:
    """The plan contains a single retraining that serves two people. A request about a stranger causes no retraining. A
    table in use cannot be retired, and a retired table has no rows."""
    table = new_table()
    trainer = new_trainer(table["id"])
    train()
    requests = [forget(person)["id"] for person in ("p1", "p2", "nobody")]
    [planned] = get(f"/trainers/{trainer['id']}/plan")["retrainings"]
    assert (sorted(planned["request_ids"]), planned["late"]) == (sorted(requests[:2]), False)
    assert train() == 1
    assert {get(f"/deletion-requests/{id_}")["status"] for id_ in requests} == {"completed"}
    assert names(trainer["id"]) == {f"np{i}" for i in range(PEOPLE)} - {"np1", "np2"}
    assert get(f"/trainers/{trainer['id']}/plan")["retrainings"] == []
    path = f"/v1/training-tables/{table['id']}"
    assert gateway.delete(path).json()["code"] == "dataset_in_use"
    gateway.delete(f"/v1/trainers/{trainer['id']}")
    assert [gateway.delete(path).status_code for _ in range(2)] == [204, 204]
    assert get(f"/training-tables/{table['id']}")["num_rows"] == 0


def test_dictionaries_keep_no_value_of_erased_rows() -> None:
    """A category is removed from a block's dictionary if it occurs only in erased rows or in other blocks."""
    number = columns.BLOCK_ROWS
    kinds = pa.chunked_array([["first"] * number, ["secret", None, "second"]]).dictionary_encode()
    drawn = columns.tokens(number + 3)
    table = columns.with_tokens(pa.table({"kind": kinds}), drawn, [f"p{i}" for i in range(number + 3)])
    first, last = columns.in_blocks(table)
    left = columns.only(last, {row.tobytes() for row in drawn[-2:]})
    assert (left.column("kind").to_pylist(), left.schema) == ([None, "second"], table.schema)
    assert [b"secret" in columns.to_bytes(block) for block in (first, last, left)] == [False, True, False]


@pytest.mark.parametrize("pages", [1, 40])
def test_a_small_parquet_file_of_a_large_table_is_refused(gateway: TestClient, pages: int) -> None:
    """A file of a few kilobytes whose texts would decompress to gigabytes is refused before it is decompressed."""
    texts = pa.array(["x" * 20_000 + str(number) for number in range(pages)]).dictionary_encode()
    indices = pa.array([number % pages for number in range(60_000)], pa.int32())
    table = pa.table(
        {
            "subject": [f"p{number}" for number in range(60_000)],
            "text": pa.DictionaryArray.from_arrays(indices, texts.dictionary),
        }
    )
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, compression="zstd", store_schema=False)
    assert sink.tell() < 2 * 2**20
    before = pa.default_memory_pool().max_memory()
    files = {"file": ("bomb.parquet", sink.getvalue())}
    answer = gateway.post("/v1/training-tables", data={"name": "t", "subject_column": "subject"}, files=files)
    assert (answer.status_code, answer.json()["code"]) == (422, "input_invalid")
    assert pa.default_memory_pool().max_memory() - before < 256 * 2**20


def test_a_table_of_addresses_causes_a_warning(new_table: New, get: Callable[[str], Any]) -> None:
    """A table whose subject ids are e-mail addresses causes exactly one warning."""
    made = new_table(b"subject,age\nu1@example.org,3\nu2@example.org,4\n", filename="a.csv")
    assert made.pop("warnings") == [ADDRESSES]
    assert get(f"/training-tables/{made['id']}") == made
    assert new_table()["warnings"] == []
