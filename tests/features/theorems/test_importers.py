"""Modules that import the theorems."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMPORT = re.compile(
    r"^\s*(?:from lethe\.features(?:\.theorems\S*)? import .*|import lethe\.features\.theorems.*)$", re.MULTILINE
)


def test_the_product_does_not_use_theorems() -> None:
    """Within the product, only the calculator imports the theorems, so none of the product's own numbers depends on
    them."""
    importers = set()
    for tree in ("app", "lethe", "worker"):
        for path in (ROOT / tree).rglob("*.py"):
            if any("theorems" in line for line in IMPORT.findall(path.read_text(encoding="utf8"))):
                importers.add(path.relative_to(ROOT).as_posix().split("/")[2])
    assert importers == {"calculator", "theorems"}
