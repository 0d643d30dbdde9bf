"""Claims of docs/decisions/0018-dense-rows.md."""

from typing import Any

from benchmarks import page, sparse

PAGE = (page.ROOT / "docs" / "decisions" / "0018-dense-rows.md").read_text()
PROSE = " ".join(PAGE.split())
RESULTS = page.read("sparse")


def test_the_page_matches_the_results() -> None:
    """The table on the page is generated from the results, and the sentences quote the same numbers."""
    assert sparse.printed(RESULTS) in PAGE
    fewest, *_, most = RESULTS["rows"]
    assert f"{most['dense_bytes'] / most['sparse_bytes']:.0f} times as much at {most['features']:,}" in PROSE
    assert (
        f"{gain(most):.1f} times as fast at {most['features']:,} features, and slower at {fewest['features']}" in PROSE
    )
    assert gain(fewest) < 1
    assert f"worth {most['accuracy'] - fewest['accuracy']:.1f} points" in PROSE
    assert 0.8 < most["noise_seconds"] / most["dense_seconds"] < 1.25


def gain(row: dict[str, Any]) -> float:
    """Return how many times faster sparse rows would be, including noise."""
    noise = row["noise_seconds"]
    return float((row["dense_seconds"] + noise) / (row["sparse_seconds"] + noise))


def test_both_gradients_are_the_same() -> None:
    """The gradient of a hundred texts is the same whether their rows are dense or sparse."""
    written, spoken = sparse.texts()
    differs = sparse.difference(written[::90], spoken[::90], features=64)
    assert differs < 1e-5
