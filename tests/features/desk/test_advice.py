"""The pages give the same advice about failures as the documentation."""

import re
from pathlib import Path

from app import errors
from app.features.desk.glossary import advice, glossary
from app.features.rehearsals import service as rehearsals
from lethe.contract import problems
from lethe.contract.problems import Problem
from lethe.features.rehearsals import contract

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
ADVICE = glossary("en").runs


def test_every_documented_failure_has_advice() -> None:
    """Each error code in docs/operations.md has advice, and no advice refers to an unknown code."""
    section = (DOCS / "operations.md").read_text().partition("### RunsFailing")[2].partition("###")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert len(documented) >= 9
    assert documented <= ADVICE.keys()
    known = {error.code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "code")}
    assert ADVICE.keys() <= documented | known | {"restored", "unknown"}


def test_every_named_error_of_a_run_has_advice() -> None:
    """There is advice for every named error that a worker can raise, in a run or when people are selected for a
    rehearsal. The only exception is a lost lease, because it does not make a run fail."""
    sources = "".join(path.read_text() for path in (ROOT / "worker").rglob("*.py"))
    names = {*re.findall(r"raise (\w+)", sources), *re.findall(r"`(\w+)`", rehearsals.draw.__doc__ or "")}
    declaring = (errors, problems, contract)
    named = {name: getattr(one, name) for name in names for one in declaring if hasattr(one, name)}
    codes = {one.code for one in named.values() if isinstance(one, type) and issubclass(one, Problem)}
    assert {"rehearsal_done", "rehearsal_too_large", "audit_failed", "dataset_damaged"} <= codes
    assert codes - {errors.LeaseLost.code} <= ADVICE.keys()


def test_unknown_codes_should_be_reported() -> None:
    """For an unexpected error code, the advice is to report it."""
    assert "Report it" in advice("ZeroDivisionError").todo
