"""Claims of docs/evidence/backbone.md."""

from benchmarks import backbone, page

PAGE = (page.EVIDENCE / "backbone.md").read_text()
PROSE = " ".join(PAGE.split())
RESULTS = page.read("backbone")


def test_the_page_matches_the_results() -> None:
    """The table on the page is generated from the results, and the text states the same numbers."""
    assert backbone.printed(RESULTS) in PAGE
    assert f"{RESULTS['rows']:,} images" in PROSE
    assert f"{RESULTS['features']} features" in PROSE
    assert f"a second moment of at most {RESULTS['second_moment']:g} stated" in PROSE
    assert f"as it comes (C = 1) reaches {RESULTS['plain']:.2f} %" in PROSE
    below, default = RESULTS["models"]
    assert below["accuracy"] > 97 > default["accuracy"]
    assert all(abs(one["noiseless"] - one["accuracy"]) < 0.125 for one in RESULTS["models"])
    assert round(below["learn_steps"] / default["learn_steps"], 1) == 2.5
    assert round(below["request_steps"][-1] / default["request_steps"][-1], 1) == 2.4


def test_stored_plans_match_the_accountant() -> None:
    """The current accountant gives the stored numbers of steps for training and for requests."""
    for row in RESULTS["models"]:
        planned = backbone.planned(backbone.made(RESULTS["rows"], l2=row["l2"]))
        assert planned == {name: row[name] for name in planned}


def test_a_missing_second_moment_costs_more_passes() -> None:
    """At the default l2, training without a declared bound on the second moment takes 2.5 times as many passes as
    training with one. A request takes at most 1.9 times as many."""
    [stated] = (one for one in RESULTS["models"] if one["name"] == "the default l2")
    without = backbone.planned(backbone.made(RESULTS["rows"], l2=stated["l2"], second_moment=None))
    assert round(without["learn_steps"] / stated["learn_steps"], 1) == 2.5
    ratios = [more / less for more, less in zip(without["request_steps"], stated["request_steps"], strict=True)]
    assert 1.3 < min(ratios) <= max(ratios) < 1.95
