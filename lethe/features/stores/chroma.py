"""Chroma stores, each a folder (`chromadb.PersistentClient`).

Chroma marks deleted vectors in its index but keeps their bytes, even after `chroma vacuum`. The adapter copies all live
records of all collections to a new folder, which replaces the old one.
"""

import contextlib
import ctypes
import secrets
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lethe.features.stores import needles, store

TESTED = "1.5.9"
_BATCH = 1000
_M_PERTURB = -6
_INCLUDE = ("embeddings", "documents", "metadatas", "uris")


class Chroma:
    """Collection in a Chroma folder. `identifier` is the metadata key whose value names the person."""

    kind = "chroma"
    method = "All live records of the folder were copied to a new one, which replaced it."

    def __init__(self, path: Path, *, collection: str, identifier: str) -> None:
        self._path, self._name, self._identifier = path, collection, identifier

    def version(self) -> str:
        return store.of_package("Chroma", "chromadb", TESTED)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with store.locked(self._path.with_name(f".{self._path.name}.lethe-lock")):
            store.recover(self._path)
            if not (self._path / "chroma.sqlite3").is_file():
                raise store.StoreError("store_missing", "Expected a folder of Chroma at the configured path")
            store.require_unused(self._path)
            with contextlib.closing(sqlite3.connect(self._path / "chroma.sqlite3")) as database:
                [(places,)] = database.execute("SELECT count(*) FROM databases WHERE name != 'default_database'")
            if places:
                raise store.StoreError("store_unsupported", "The folder has other databases than default_database")
            yield

    def find(self, identifier: str) -> list[needles.StoreRecord]:
        with opened(self._path) as client:
            collection = self._collection(client)
            if collection.count() and not self._has_identifier(collection):
                raise store.StoreError(
                    "identifier_missing", "No record of the collection has the key of the identifier"
                )
            same: list[str | int] = [identifier, int(identifier)] if identifier.isdecimal() else [identifier]
            pages = [collection.get(where={self._identifier: name}, include=list(_INCLUDE)) for name in same]
            return [record for page in pages for record in _records(page)]

    def _has_identifier(self, collection: Any) -> bool:
        pages = _pages(collection, include=["metadatas"])
        return any(self._identifier in (metadata or {}) for page in pages for metadata in page["metadatas"])

    def plant(self, identifier: str) -> None:
        with opened(self._path) as client:
            collection = self._collection(client)
            width = collection._model.dimension
            if width is None:
                raise store.StoreError("control_not_planted", "The collection has no vectors")
            collection.add(
                ids=[f"{store.CONTROL}{secrets.token_hex(12)}"],
                embeddings=[np.random.default_rng().normal(size=width).tolist()],
                documents=[f"{store.CONTROL}{secrets.token_hex(24)}"],
                metadatas=[{self._identifier: identifier}],
            )

    def erase(self, identifiers: Sequence[str]) -> None:
        new = self._path.with_name(f"{self._path.name}.lethe-new")
        with opened(self._path) as client, opened(new) as target:
            for source in client.list_collections():
                with warnings.catch_warnings():
                    # Collections without an embedding function in their configuration cause this warning.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    like = source.configuration
                copy = target.create_collection(
                    source.name, metadata=source.metadata, configuration=like, embedding_function=None
                )
                expected = 0
                for page in _pages(source, include=list(_INCLUDE)):
                    kept = [
                        place
                        for place, metadata in enumerate(page["metadatas"])
                        if source.name != self._name or str((metadata or {}).get(self._identifier)) not in identifiers
                    ]
                    expected += len(kept)
                    chosen = {name: [page[name][place] for place in kept] for name in ("ids", *_INCLUDE)}
                    if kept:
                        filled = [name for name, column in chosen.items() if any(value is not None for value in column)]
                        copy.add(**{name: chosen[name] for name in filled})
                if copy.count() != expected:
                    raise store.StoreError(
                        "rebuild_incomplete", "The new folder has not as many records as the old one"
                    )
        store.swap(self._path, new)

    def files(self) -> list[store.StoreFile]:
        paths = sorted(path for path in self._path.rglob("*") if path.is_file())
        return [store.StoreFile(path=path, name=path.relative_to(self._path).as_posix()) for path in paths]

    def live(self) -> Iterator[needles.StoreRecord]:
        with opened(self._path) as client:
            for collection in client.list_collections():
                for page in _pages(collection, include=list(_INCLUDE)):
                    yield from _records(page)

    def _collection(self, client: Any) -> Any:
        if self._name not in [collection.name for collection in client.list_collections()]:
            raise store.StoreError("collection_missing", "The folder has no collection of the configured name")
        return client.get_collection(self._name, embedding_function=None)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    import chromadb

    _overwrite_freed_memory()
    client = chromadb.PersistentClient(str(path), settings=chromadb.Settings(anonymized_telemetry=False))
    try:
        yield client
    finally:
        client.close()


def _overwrite_freed_memory() -> None:
    """Make glibc overwrite memory when it is allocated or freed. Chroma writes an index buffer to its file, including
    uninitialised parts, which could otherwise contain data that this process read earlier. This is done for Chroma
    only; the search for residues finds what other libraries leave behind."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, 0xA5)


def _pages(collection: Any, *, include: list[str]) -> Iterator[Any]:
    for offset in range(0, collection.count(), _BATCH):
        yield collection.get(limit=_BATCH, offset=offset, include=include)


def _records(page: Any) -> list[needles.StoreRecord]:
    records = []
    for place, record_id in enumerate(page["ids"]):
        values = [page["documents"][place], page["uris"][place], *(page["metadatas"][place] or {}).values()]
        records.append(
            needles.StoreRecord(
                id=record_id,
                vectors=(np.asarray(page["embeddings"][place]),),
                texts=tuple(text for text in values if isinstance(text, str)),
            )
        )
    return records
