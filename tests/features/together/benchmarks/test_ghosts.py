"""Measurements quoted in docs/vector-stores.md."""

import re

from benchmarks import ghosts, page

PAGE = (page.ROOT / "docs" / "vector-stores.md").read_text()
RESULTS = [ghosts.Measured(**one) for one in page.read("ghosts")]


def test_page_table_matches_the_stored_results() -> None:
    """The page contains the stored results as a table with one row per store. It also states the numbers of records and
    people, and the share of the records that belong to the person."""
    assert [one.store for one in RESULTS] == list(ghosts.STORES)
    assert ghosts.table(RESULTS) in PAGE
    assert f"one of them, with {100 * ghosts.OF_ONE // ghosts.RECORDS} % of the records" in PAGE
    assert f"in {ghosts.RECORDS:,} records of {ghosts.RECORDS // ghosts.OF_ONE} people" in PAGE


def test_the_page_names_the_measured_stores() -> None:
    """The page names the stores, versions and deletion commands of the results. Every store was clean after Lethe's
    deletion, except for the documents folder, which has copies elsewhere."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| [^|]+ \|$", PAGE.replace("`", ""), re.MULTILINE)
    named = {name.lower(): plain.lower() for name, plain in rows}
    for one in RESULTS:
        version = re.match(r"[\d.]+", one.version)
        assert version
        if one.store == "documents":
            assert (named["folder of documents"], one.grade) == ("unlink", None)
            continue
        assert (one.grade, sum(one.after_lethe.values())) == ("searched", 0)
        name = {"pgvector": "pgvector 0.8 on postgresql 16"}.get(one.store, f"{one.store} {version[0]}")
        assert named[name] == one.plain.lower()
    [postgres] = [one.version for one in RESULTS if one.store == "pgvector"]
    assert re.fullmatch(r"16\.\d+ with pgvector 0\.8\.\d+", postgres)
