"""CITATION.cff, which tools and people use to cite Lethe."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_lethe_can_be_cited() -> None:
    """CITATION.cff contains the fields that version 1.2.0 of its schema requires, and the package's version."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert all(cited[required] for required in ("authors", "message", "title"))
    assert cited["type"] == "software"
    for work in (cited, *cited["references"]):
        assert all(
            {"name"} <= author.keys() or {"family-names", "given-names"} <= author.keys() for author in work["authors"]
        )
    assert all({"type", "title", "authors"} <= reference.keys() for reference in cited["references"])
    assert str(cited["version"]) == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
