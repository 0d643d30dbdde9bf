import re

from app import errors
from lethe import sockets
from lethe.contract import problems
from lethe.contract.problems import FieldError, Problem
from tests.tables import each

CONTRACTS = {module.__name__ for module in sockets.modules("lethe.features", "contract")}
"""Modules of features that declare their own conditions; imported here, whatever other tests import."""


def conditions(base: type[Problem] = Problem) -> list[type[Problem]]:
    """Return all conditions of the contract, the server and the SDK, except those of the optional handover feature."""
    every = [base, *(found for child in base.__subclasses__() for found in conditions(child))]
    return [one for one in every if not one.__module__.startswith("lethe.features.handover.")]


def test_codes_are_unique() -> None:
    """No two error conditions share a code or a title, and every code is in lower-case snake case."""
    found = conditions()
    assert len({condition.code for condition in found}) == len(found)
    assert len({condition.title for condition in found}) == len(found)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", condition.code) for condition in found)


def test_codes_are_the_names_of_their_conditions() -> None:
    """The code of an error condition is the name of its class in snake case, so that each can be derived from the
    other."""
    for condition in conditions()[1:]:
        name = condition.__name__
        assert condition.code == "_".join(re.findall("[A-Z][a-z]+", name)).lower(), name


@each("condition", conditions())
def test_a_condition_has_a_detail_and_locations(condition: type[Problem]) -> None:
    """An error condition has a human-readable detail and the locations of the faults; its one-line form is its code
    followed by both."""
    faults = [FieldError("a.b", "expected a number")]
    if condition is errors.AuditFailed:
        # Its message states what was observed instead.
        return
    error = condition("Do something else.", faults)
    assert (str(error), error.detail, error.errors) == ("Do something else.", "Do something else.", tuple(faults))
    assert error.line == f"{condition.code}: Do something else.; a.b: expected a number"


def test_conditions_are_declared_in_contracts() -> None:
    """Error conditions that callers see are declared in the contract, or in the contract of the only feature that
    raises them. Error conditions inside the server are declared in `app.errors`, and there are no others."""
    declared = {condition.__module__ for condition in conditions()}
    assert declared - CONTRACTS - {"lethe.errors"} == {errors.__name__, problems.__name__}
