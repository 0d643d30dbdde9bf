"""Erasing people from real stores, and searching the files before and after."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks import ghosts
from lethe.features.stores import chroma, erasure, store
from lethe.features.stores.chroma import Chroma
from lethe.features.stores.documents import Documents
from lethe.features.stores.erasure import Finding
from lethe.features.stores.lance import LanceDB
from lethe.features.stores.postgres import PGVector
from lethe.features.stores.reports import grade_of
from lethe.features.stores.store import StoreError

SMALL = {"records": 600, "of_one": 30, "width": 64}
POSTGRES = pytest.param("pgvector", marks=pytest.mark.postgres)
KINDS = ["chroma", "lancedb", POSTGRES, "documents"]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the database's URL for a test of pgvector, and an empty string for other stores."""
    needs = "pgvector" in str(request.node.name) or request.node.get_closest_marker("postgres")
    return str(request.getfixturevalue("pgvector")) if needs else ""


def built(kind: str, folder: Path, url: str = "", seed: int = 1) -> tuple[Any, str]:
    """Build a small store that contains a person, and return the store and the person's name."""
    made = ghosts.people(seed, **SMALL)
    return ghosts.STORES[kind](folder, url, made), made.who[0]


def erased(one: Any, name: str, folder: Path) -> Finding:
    [finding] = erasure.erase(one.store, [[name]], journal=folder / "journal.json")
    return finding


def refusal(one: Any, name: str, folder: Path) -> str:
    with pytest.raises(StoreError) as refused:
        erased(one, name, folder)
    assert name not in str(refused.value)
    return refused.value.code


def assert_no_false_clean(kind: str, folder: Path, url: str, seed: int) -> None:
    """Check that vectors survive the store's own deletion, and that they are gone after Lethe's, which is graded
    `searched`."""
    measured = ghosts.measure(kind, folder, url, seed, **SMALL)
    assert measured.before == measured.sought
    if kind == "documents":
        # The copy in another file is Lethe's to find and its owner's to remove.
        assert (measured.after_plain["text"], measured.grade) == (3, None)
        return
    assert measured.after_plain["vector"] == measured.sought["vector"] == 30
    assert not any(measured.after_lethe.values())
    assert measured.grade == "searched"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_plain_deletion_leaves_ghosts_but_rebuilding_does_not(kind: str, url: str, tmp_path: Path) -> None:
    """After each store's own deletion and clean-up, its files still contain vectors of the deleted person, who had 5 %
    of the records. After Lethe's deletion, they contain no data about the person, and the deletion is graded as
    searched."""
    assert_no_false_clean(kind, tmp_path, url, seed=0)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_five_runs_are_never_wrongly_reported_as_clean(kind: str, url: str, tmp_path: Path) -> None:
    """In five runs on different data, ghosts are always found after a plain deletion and never after Lethe's
    deletion."""
    for seed in range(1, 6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert_no_false_clean(kind, folder, url, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chroma", "lancedb", POSTGRES])
def test_a_repeated_call_searches_for_the_same_samples(kind: str, url: str, tmp_path: Path) -> None:
    """If an erasure is repeated before its result has been reported, it searches for the same samples that the store
    returned the first time. It leaves other people's records unchanged."""
    one, name = built(kind, tmp_path, url)
    first = erased(one, name, tmp_path)
    assert (tmp_path / "journal.json").stat().st_mode & 0o077 == 0
    second = erased(one, name, tmp_path)
    for finding in (first, second):
        assert finding.before["vector"] == {"sought": 30, "found": 30}
        assert (finding.records, grade_of(finding.to_json())) == (30, "searched")
    erasure.finish(tmp_path / "journal.json", [[name]])
    assert not (tmp_path / "journal.json").exists()
    with one.store.held():
        left = list(one.store.live())
    assert len(left) == SMALL["records"] - 30
    assert not any(text == name for record in left for text in record.texts)


@pytest.mark.slow
def test_people_are_erased_together(tmp_path: Path) -> None:
    """Several people are erased in one rebuild, with one finding per person. The finding for a person without data
    contains only the search's control."""
    made = ghosts.people(2, **SMALL)
    one = ghosts.STORES["chroma"](tmp_path, "", made)
    people = [[made.who[0], made.who[40]], ["somebody-else@example.com"]]
    findings = erasure.erase(one.store, people, journal=tmp_path / "journal.json")
    assert [finding.records for finding in findings] == [60, 0]
    assert [finding.control["vector"]["found"] for finding in findings] == [1, 1]
    assert [grade_of(finding.to_json()) for finding in findings] == ["searched", "searched"]


def test_a_copy_is_a_ghost_until_it_is_removed(tmp_path: Path) -> None:
    """If a document was copied into another file, the finding names that file and the offset. Once the copy has been
    removed, the next call finds no remains, even though the documents folder is then empty."""
    folder = tmp_path / "documents"
    (folder / "people" / "customer-77").mkdir(parents=True)
    (folder / "people" / "customer-77" / "letter.txt").write_text("Complaint about parcel 4711")
    copy = folder / "mail.bak"
    copy.write_bytes(b"\0" * 99 + b"Complaint about parcel 4711")
    documents = Documents(folder, pattern="people/{identifier}/**")
    journal = tmp_path / "journal.json"
    [finding] = erasure.erase(documents, [["customer-77"]], journal=journal)
    [ghost] = finding.ghosts
    assert (ghost.kind, ghost.file, ghost.where) == ("text", "mail.bak", "offset 99")
    assert not (folder / "people" / "customer-77").exists()
    copy.unlink()
    [finding] = erasure.erase(documents, [["customer-77"]], journal=journal)
    assert (finding.ghosts, finding.before["text"]) == ((), {"sought": 1, "found": 1})
    assert grade_of(finding.to_json()) == "searched"


@pytest.mark.postgres
def test_a_blind_search_is_not_graded_as_searched(url: str, tmp_path: Path) -> None:
    """Texts that the database server compresses cannot all be found even before their deletion. The deletion is
    therefore not graded as searched."""
    one, name = built("pgvector", tmp_path, url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE people SET body = repeat(md5(body) || ' ', 400)")
    finding = erased(one, name, tmp_path)
    assert finding.before["text"]["found"] < finding.before["text"]["sought"]
    assert not finding.ghosts
    assert grade_of(finding.to_json()) == "acknowledged"


@pytest.mark.soak
@pytest.mark.postgres
def test_dead_rows_that_a_transaction_still_sees_are_ghosts(url: str, tmp_path: Path) -> None:
    """While an old transaction keeps dead rows in the rewritten table, the finding names the table's file. After the
    transaction has ended, the next call finds no remains."""
    one, name = built("pgvector", tmp_path, url)
    with psycopg.connect(url) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")
        finding = erased(one, name, tmp_path)
        assert {ghost.file.partition("/")[0] for ghost in finding.ghosts} == {"base"}
    finding = erased(one, name, tmp_path)
    assert (finding.ghosts, grade_of(finding.to_json())) == ((), "searched")


@pytest.mark.postgres
def test_a_locked_table_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another session has locked the table, erasure is refused with a specific error."""
    one, name = built("pgvector", tmp_path, url)
    monkeypatch.setattr("lethe.features.stores.postgres.LOCK_TIMEOUT", "100ms")
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE people IN SHARE MODE")
        assert refusal(one, name, tmp_path) == "store_in_use"
    other = PGVector(url, table="people", identifier="person", record_id="id")
    assert refusal(type("Of", (), {"store": other}), name, tmp_path) == "identifier_missing"


@pytest.mark.slow
def test_a_store_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    """A Chroma folder that a running application has open is refused with a specific error, and so is a second
    concurrent run of Lethe."""
    one, name = built("chroma", tmp_path)
    program = f"f = open({str(tmp_path / 'chroma' / 'chroma.sqlite3')!r}); print(flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        assert refusal(one, name, tmp_path) == "store_in_use"
    finally:
        other.communicate(b"\n")
    with one.store.held():
        assert refusal(one, name, tmp_path) == "store_in_use"
    assert erased(one, name, tmp_path).records == 30


@pytest.mark.slow
def test_unusable_stores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is missing, has no identifier field or has an untested version is refused before anything
    changes."""
    one, name = built("chroma", tmp_path)
    path = tmp_path / "chroma"

    def refused(other: Any) -> str:
        return refusal(type("Of", (), {"store": other}), name, tmp_path)

    assert refused(Chroma(path, collection="people", identifier="person")) == "identifier_missing"
    assert refused(Chroma(path, collection="customers", identifier="customer")) == "collection_missing"
    assert refused(Chroma(tmp_path, collection="people", identifier="customer")) == "store_missing"
    built("lancedb", tmp_path)
    assert refused(LanceDB(tmp_path / "lance", table="people", identifier="x", record_id="id")) == "identifier_missing"
    assert refused(LanceDB(tmp_path / "lance", table="x", identifier="x", record_id="id")) == "collection_missing"
    monkeypatch.setattr(chroma, "TESTED", "1.5.8")
    assert refusal(one, name, tmp_path) == "store_version_untested"


@pytest.mark.slow
def test_indices_of_lancedb_are_rebuilt(tmp_path: Path) -> None:
    """A rebuilt LanceDB table has the same indices as the old table and uses them."""
    from lancedb.index import FTS, BTree, IvfPq

    one, name = built("lancedb", tmp_path)
    one.table.create_index("vector", config=IvfPq(distance_type="cosine", num_partitions=2, num_sub_vectors=8))
    one.table.create_index("customer", config=BTree())
    one.table.create_index("text", config=FTS())
    before = {(index.name, index.index_type) for index in one.table.list_indices()}
    finding = erased(one, name, tmp_path)
    assert (finding.ghosts, grade_of(finding.to_json())) == ((), "searched")
    table = one.store._table()
    assert {(index.name, index.index_type) for index in table.list_indices()} == before
    assert table.index_stats("vector_idx").distance_type == "cosine"
    [row] = table.search(ghosts.people(1, **SMALL).vectors[100]).limit(1).to_list()
    assert row["id"] == ghosts.people(1, **SMALL).ids[100]


@pytest.mark.parametrize("renamed", range(4))
def test_an_interrupted_swap_is_completed(renamed: int, tmp_path: Path) -> None:
    """After a crash at any point during the swap, the folder is complete: it is the old folder if the crash came before
    the first rename, and the new one otherwise. No temporary folder remains."""
    folder, new, aside = (tmp_path / name for name in ("f", "f.lethe-new", "f.lethe-old"))
    for place, content in ((folder, "old"), (new, "new")):
        place.mkdir()
        (place / "file").write_text(content)
    if renamed >= 1:
        folder.rename(aside)
    if renamed >= 2:
        new.rename(folder)
    if renamed >= 3:
        (aside / "file").unlink()
    for _ in range(2):
        store.recover(folder)
        assert (folder / "file").read_text() == ("new" if renamed else "old")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]
