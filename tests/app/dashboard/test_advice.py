"""What the pages say about failures is what the documentation says."""

import re
from pathlib import Path

from app import errors
from app.dashboard.advice import _ADVICE, advice

DOCS = Path(__file__).parents[3] / "docs"


def test_every_documented_failure_has_advice() -> None:
    """Each error code that docs/operations.md explains is explained on the page, and none that does not exist."""
    section = (DOCS / "operations.md").read_text().partition("### RunsFailing")[2].partition("###")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert len(documented) >= 9
    assert documented <= _ADVICE.keys()
    known = {error.code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "code")}
    assert _ADVICE.keys() <= documented | known | {"restored"}


def test_what_nobody_foresaw_is_a_defect() -> None:
    """Any other code is to be reported."""
    assert "Report it" in advice("ZeroDivisionError").todo
