"""`client.identities`: links between one person's identifiers, and the kinds of identifiers that a request covers."""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic

from lethe.client.methods import H, Resource, call, composed, makes
from lethe.contract.problems import FieldError, InputInvalid, Problem
from lethe.features.identities import contract

_PLACE = re.compile(r"links\.([0-9]+)(.*)", re.DOTALL)
_HASHED = "_sha256"
MAX_BATCH = 500


class LoadTotals(pydantic.BaseModel):
    """Totals for all calls of one load. `suppressed`: positions of links left out because the person was forgotten."""

    num_links: int = 0
    num_new: int = 0
    num_joined: int = 0
    num_suppressed: int = 0
    num_single: int = 0
    suppressed: list[str] = pydantic.Field(default_factory=list)


class Identities(Resource[H]):
    """`client.identities`: calls about identity maps."""

    load = call(contract.LOAD)
    get = call(contract.GET)
    define_kind = call(contract.DEFINE_KIND)
    forget = call(contract.FORGET)

    @composed
    @makes(contract.LOAD)
    async def load_rows(
        self, rows: Iterable[Mapping[str, object]], *, confirm_joins: bool = False, first: int = 1, place: str = "row"
    ) -> LoadTotals:
        """Load rows, each with one person's identifiers keyed by kind, in calls of up to 500 links. A key that ends in
        `_sha256` holds the hash of an identifier. Empty values and rows with a single identifier are skipped.

        Each call loads all of its links or none of them. Repeating an interrupted load is a no-op for links already
        loaded. Raises a `Problem` that names rows (as `place` with a number, starting at `first`) but no identifiers.
        """
        totals = LoadTotals()
        numbered = ((number, identifiers_of(row)) for number, row in enumerate(rows, first))
        linked: Iterator[tuple[int, list[dict[str, str]]]] = (
            (number, identifiers) for number, identifiers in _counted(numbered, totals) if len(identifiers) > 1
        )
        while batch := list(itertools.islice(linked, MAX_BATCH)):
            numbers = [number for number, _ in batch]
            body = _checked([identifiers for _, identifiers in batch], confirm_joins, numbers, place)
            try:
                answer = await self._calls.call(contract.LOAD, arguments=body)
            except Problem as problem:
                raise _of_rows(problem, numbers, place) from None
            totals.num_links += answer.num_links
            totals.num_new += answer.num_new or 0
            totals.num_joined += answer.num_joined or 0
            totals.num_suppressed += answer.num_suppressed or 0
            totals.suppressed += [f"{place} {numbers[index]}" for index in answer.suppressed]
        return totals


class RequestIdentities(Resource[H]):
    """Methods of `client.deletion_requests` that concern the identifiers that a request covers."""

    identities = call(contract.OF_REQUEST)


def csv_rows(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a UTF-8 CSV file whose header names kinds of identifiers. Raises `InputInvalid` for a line with
    more cells than the header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            if None in row:
                raise InputInvalid("The file cannot be read.", [FieldError(f"line {number}", "expected fewer cells")])
            yield row


def identifiers_of(row: Mapping[str, object]) -> list[dict[str, str]]:
    """Return a row's non-empty identifiers."""
    present = ((str(name).strip(), str(value).strip()) for name, value in row.items() if value is not None)
    return [
        {"kind": name.removesuffix(_HASHED), "sha256" if name.endswith(_HASHED) else "id": value}
        for name, value in present
        if value
    ]


def _counted(
    rows: Iterable[tuple[int, list[dict[str, str]]]], totals: LoadTotals
) -> Iterator[tuple[int, list[dict[str, str]]]]:
    for number, identifiers in rows:
        totals.num_single += len(identifiers) == 1
        yield number, identifiers


def _checked(
    links: list[list[dict[str, str]]], confirm_joins: bool, numbers: list[int], place: str
) -> contract.IdentitiesIn:
    body: dict[str, Any] = {"links": [{"identifiers": link} for link in links], "confirm_joins": confirm_joins}
    try:
        return contract.IdentitiesIn.model_validate(body)
    except pydantic.ValidationError as error:
        faults = [FieldError(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors()[:10]]
    raise _of_rows(InputInvalid("Some rows have no identifiers of known form.", faults), numbers, place)


def _of_rows(problem: Problem, numbers: list[int], place: str) -> Problem:
    """Return the problem with each fault located by row in the caller's file or query result."""
    faults = []
    for fault in problem.errors:
        where = _PLACE.fullmatch(fault.path)
        path = f"{place} {numbers[int(where[1])]}" if where else fault.path
        faults.append(FieldError(path, fault.message))
    return type(problem)(problem.detail, faults)
