"""LanceDB stores, each a folder of tables.

LanceDB only hides deleted rows: it rewrites a file only once a tenth of its rows are deleted, and the conditions of
deletions remain in the transaction files. The adapter copies the live rows to a new table with the same indices, which
replaces the old one. Files are searched both raw and decoded, because texts are compressed.
"""

import contextlib
import functools
import itertools
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lethe.features.stores import needles, store

TESTED, TESTED_FORMAT = "0.40.0", "14.0.2"
_DECODED = (".lance", ".idx")
_ROWS = 1024
_BATCHES = 64


class LanceDB:
    """Table in a LanceDB folder. `identifier` is the column that names the person, `record_id` the id column."""

    kind = "lancedb"
    method = "All live rows of the table were copied to a new one with the same indices, which replaced it."

    def __init__(self, path: Path, *, table: str, identifier: str, record_id: str) -> None:
        self._path, self._name, self._identifier, self._id = path, table, identifier, record_id
        self._folder = path / f"{table}.lance"

    def version(self) -> str:
        store.of_package("the files of LanceDB", "pylance", TESTED_FORMAT)
        return store.of_package("LanceDB", "lancedb", TESTED)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        if not self._path.is_dir():
            raise store.StoreError("store_missing", "Expected a folder of LanceDB at the configured path")
        with store.locked(self._path / f".{self._name}.lethe-lock"):
            store.recover(self._folder)
            if (work := self._path / f".{self._name}.lethe-work").exists():
                store.destroy(work)
            if not self._folder.is_dir():
                raise store.StoreError("collection_missing", "The folder has no table of the configured name")
            store.require_unused(self._folder)
            names = self._table().schema.names
            if missing := {self._identifier, self._id} - set(names):
                raise store.StoreError(
                    "identifier_missing", f"The table has {len(missing)} of the configured columns less"
                )
            yield

    def _table(self, path: Path | None = None) -> Any:
        return _connected(str(path or self._path)).open_table(self._name)

    def _where(self, identifiers: Sequence[str]) -> str:
        quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in identifiers)
        return f"CAST(`{self._identifier}` AS STRING) IN ({quoted})"

    def find(self, identifier: str) -> list[needles.StoreRecord]:
        batches = self._table().search().where(self._where([identifier])).to_batches(_ROWS)
        return [record for batch in batches for record in self._records(batch)]

    def plant(self, identifier: str) -> None:

        table = self._table()
        template = table.head(1)
        if not template.num_rows:
            raise store.StoreError("control_not_planted", "The table has no rows")
        columns = []
        for field in template.schema:
            column = template[field.name].combine_chunks()
            if field.name == self._identifier:
                column = pa.array([identifier], type=field.type)
            elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                column = pa.array([f"{store.CONTROL}{secrets.token_hex(24)}"], type=field.type)
            elif _is_vector(field.type) and column[0].is_valid:
                values = np.random.default_rng().normal(size=len(column[0].values))
                column = pa.array([values.tolist()], type=pa.list_(pa.float64())).cast(field.type)
            columns.append(column)
        table.add(pa.table(columns, schema=template.schema))

    def erase(self, identifiers: Sequence[str]) -> None:
        source, work = self._table(), self._path / f".{self._name}.lethe-work"
        version, where = source.version, self._where(identifiers)
        kept = f"`{self._identifier}` IS NULL OR NOT ({where})"
        target = _connected(str(work)).create_table(self._name, schema=source.schema)
        batches = source.search().where(kept).to_batches(_ROWS)
        while part := list(itertools.islice(batches, _BATCHES)):
            target.add(pa.Table.from_batches(part, schema=source.schema))
        if target.count_rows() != source.count_rows() - source.count_rows(where):
            raise store.StoreError("rebuild_incomplete", "The new table has not as many rows as the old one")
        for index in source.list_indices():
            _index_again(target, index)
        if self._table().version != version:
            raise store.StoreError("store_in_use", "The table was changed while it was rebuilt; stop what writes to it")
        new = self._folder.with_name(f"{self._folder.name}.lethe-new")
        (work / self._folder.name).rename(new)
        store.swap(self._folder, new)
        store.destroy(work)

    def files(self) -> list[store.StoreFile]:
        paths = sorted(path for path in self._folder.rglob("*") if path.is_file())
        return [
            store.StoreFile(
                path=path,
                name=path.relative_to(self._path).as_posix(),
                decoded=functools.partial(_decoded, path) if path.suffix in _DECODED else None,
            )
            for path in paths
        ]

    def live(self) -> Iterator[needles.StoreRecord]:
        for batch in self._table().search().to_batches(_ROWS):
            yield from self._records(batch)

    def _records(self, batch: Any) -> Iterator[needles.StoreRecord]:

        columns = [batch.column(name) for name in batch.schema.names if name != "_rowid"]
        ids = batch.column(self._id)
        for place in range(batch.num_rows):
            values = [column[place] for column in columns if column[place].is_valid]
            yield needles.StoreRecord(
                id=str(ids[place].as_py()),
                vectors=tuple(np.asarray(value.values) for value in values if _is_vector(value.type)),
                texts=tuple(
                    value.as_py()
                    for value in values
                    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type)
                ),
            )


def _connected(path: str) -> Any:
    import lancedb

    return lancedb.connect(path)


def _is_vector(kind: Any) -> bool:
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _index_again(table: Any, index: Any) -> None:
    """Create an index like `index` on a table. Raises `StoreError` if LanceDB cannot create it again."""
    import dataclasses

    import lancedb.index as kinds

    kind: Any = getattr(kinds, index.index_type, None)
    if not hasattr(kind, "__dataclass_fields__"):
        raise store.StoreError("index_unknown", "The table has an index of a kind that cannot be made again")
    details = dict(index.index_details)
    known = details | details.get("compression", {})
    if "metric_type" in details:
        known["distance_type"] = details["metric_type"].lower()
    options = {field.name: known[field.name] for field in dataclasses.fields(kind) if known.get(field.name) is not None}
    [column] = index.columns
    try:
        table.create_index(column, config=kind(**options), name=index.name)
    except (ValueError, RuntimeError, TypeError) as error:
        raise store.StoreError("index_not_rebuilt", f"An index was refused ({type(error).__name__})") from None


def _decoded(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield a file's columns, in parts, including deleted rows."""
    from lance.file import LanceFileReader

    first = 0
    for batch in LanceFileReader(str(path)).read_all(batch_size=_ROWS).to_batches():
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for buffer in column.buffers():
                if buffer is not None:
                    yield f"rows from {first}, column {name}", buffer.to_pybytes()
        first += batch.num_rows
