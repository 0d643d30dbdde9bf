"""Pages of evidence name the commit and the defaults of their measurements."""

import re

import pytest

from benchmarks import page
from lethe.proof import calibration

PAGES = sorted(path.name for path in page.EVIDENCE.glob("*.md") if path.name != "README.md")
BLOCK = re.compile(r"```text\nmeasured on: [0-9a-f]{8}\n((?:defaults for \d+ rows: [^\n]+\n)+|defaults: none\n)```\n")
ROWS = re.compile(r"defaults for (\d+) rows: ([^\n]+)")


def defaults(num_rows: int) -> str:
    """Return the settings of a model of two classes at epsilon 1 and delta n^-1.1, as pages cite them."""
    settings = calibration.ModelSettings(epsilon=1.0, delta=num_rows**-1.1)
    made = calibration.mechanism_for(settings, num_slots=num_rows, num_classes=2)
    names = ("batch_size", "cool_down", "l2", "noise_scale", "learn_steps")
    return " ".join(f"{name}={getattr(made, name):.5g}" for name in names)


@pytest.mark.parametrize("name", PAGES)
def test_pages_of_evidence_state_their_defaults(name: str) -> None:
    """Each page of evidence cites the current defaults, or states in a fixed sentence that its measurements used
    different ones."""
    text = (page.EVIDENCE / name).read_text()
    [cited] = BLOCK.findall(text)
    stale = {rows: defaults(int(rows)) for rows, told in ROWS.findall(cited) if told != defaults(int(rows))}
    assert (page.DIFFER in text) == bool(stale), f"Measure {name} again, or say that it differs from {stale}."
