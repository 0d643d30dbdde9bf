"""`client.drop`: California's delete list."""

import csv
import io
import itertools
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pydantic

from lethe.client.methods import H, Resource, call, checked, composed, makes, saved
from lethe.contract.problems import FieldError, InputInvalid
from lethe.features.drop import contract
from lethe.features.drop.standard import FIELDS, FIELDS_OF, DropList, hashes
from lethe.features.identities.contract import CUSTOMER_ID

_COLUMNS = ["id", "hash"]
_OF_REMOVED = [*_COLUMNS, "listtype"]
_PEOPLE_AT_ONCE = 500


class DropTotals(pydantic.BaseModel):
    """Number of files and lines loaded, and number of lines that DROP removed too late, because the people's data have
    been or are being erased (None for keys without accounting:read)."""

    num_files: int = 0
    num_lines: int = 0
    num_irrevocable: int | None = 0


class PeopleTotals(pydantic.BaseModel):
    """Number of rows loaded, and of hashes per list. `nothing_held` counts, per list, the rows without data for it."""

    num_rows: int = 0
    hashes: dict[str, int] = pydantic.Field(default_factory=dict)
    nothing_held: dict[str, int] = pydantic.Field(default_factory=dict)


class Drop(Resource[H]):
    """`client.drop`: calls about California's delete list."""

    load = call(contract.LOAD)
    people = call(contract.PEOPLE)
    get = call(contract.GET)
    answer = saved(contract.ANSWER)
    opt_out = call(contract.OPT_OUT)

    @composed
    @makes(contract.LOAD)
    async def load_file(self, path: str | Path) -> DropTotals:
        """Load a DROP download: the ZIP archive, or one of its CSV files under its original name. Files of any length
        are read line by line. Repeat an interrupted load from the start. Raises `InputInvalid`, naming the line."""
        totals = DropTotals()
        for name, file in _files(Path(path)):
            num_lines = 0
            for batch in _batches(name, file):
                num_lines += len(batch)
                answer = await self._send(name, batch, None)
                stated = answer.num_irrevocable
                totals.num_irrevocable = None if stated is None else (totals.num_irrevocable or 0) + stated
            answer = await self._send(name, [], num_lines)
            if contract.list_of(name) is not None and answer.num_loaded != num_lines:
                expected = f"expected distinct IDs, found {answer.num_loaded} in {num_lines} lines"
                raise InputInvalid("The file has lines twice.", [FieldError(name, expected)])
            totals.num_files += 1
            totals.num_lines += num_lines
        return totals

    async def _send(self, name: str, lines: list[dict[str, str]], num_lines: int | None) -> contract.LinesLoadedOut:
        body = checked(contract.LinesIn, {"file": name, "lines": lines, "num_lines": num_lines})
        return await self._calls.call(contract.LOAD, arguments=body)

    @composed
    @makes(contract.PEOPLE)
    async def load_people(
        self, rows: Iterable[Mapping[str, object]], *, kind: str = CUSTOMER_ID, first: int = 1, place: str = "row"
    ) -> PeopleTotals:
        """Load people's hashes. A row identifies the person under the key `kind` and can have the keys email, phone,
        maid, ctvid, first_name, last_name, birth_date, zip and vin. An empty value states that no such data is held.
        Fields are hashed locally, and only hashes are sent.

        Raises `InputInvalid`, which names rows (as `place` with a number, starting at `first`) but no values.
        """
        totals = PeopleTotals()
        numbered = enumerate(rows, first)
        while batch := list(itertools.islice(numbered, _PEOPLE_AT_ONCE)):
            people = [_person(row, kind, f"{place} {number}", totals) for number, row in batch]
            body = checked(contract.PeopleIn, {"people": people})
            try:
                await self._calls.call(contract.PEOPLE, arguments=body)
            except InputInvalid as problem:
                raise InputInvalid(
                    problem.detail, [_of_rows(fault, batch[0][0], place) for fault in problem.errors]
                ) from None
            totals.num_rows += len(batch)
        return totals


def _of_rows(fault: FieldError, first: int, place: str) -> FieldError:
    """Return the fault, located by row in the caller's file instead of by position in the batch."""
    parts = fault.path.split(".")
    row = f"{place} {first + int(parts[1])}" if len(parts) > 1 and parts[1].isdecimal() else fault.path
    return FieldError(row, fault.message)


def _person(row: Mapping[str, object], kind: str, place: str, totals: PeopleTotals) -> dict[str, Any]:
    fields = {str(name).strip(): "" if value is None else str(value) for name, value in row.items()}
    if not fields.get(kind, "").strip():
        raise InputInvalid("A row names nobody.", [FieldError(place, f"expected the person in the column {kind}")])
    stated: dict[DropList, tuple[str, ...]] = {}
    for drop_list, names in FIELDS_OF.items():
        if set(names) <= fields.keys():
            try:
                stated[drop_list] = hashes(drop_list, fields)
            except InputInvalid as problem:
                faults = [FieldError(f"{place}, {fault.path}", fault.message) for fault in problem.errors]
                raise InputInvalid(problem.detail, faults) from None
            totals.hashes[drop_list] = totals.hashes.get(drop_list, 0) + len(stated[drop_list])
            totals.nothing_held[drop_list] = totals.nothing_held.get(drop_list, 0) + (not stated[drop_list])
    if not stated:
        expected = "expected columns of " + ", ".join(FIELDS)
        raise InputInvalid("The rows have no field of DROP.", [FieldError(place, expected)])
    return {"kind": kind, "id": fields[kind], "hashes": stated}


def _files(path: Path) -> Iterator[tuple[str, IO[str]]]:
    """Yield the name and text stream of each CSV file, with files of removed lines last. Raises `InputInvalid`."""
    with _opened(path) as archive:
        names = [path.name] if archive is None else [name for name in archive.namelist() if name.endswith(".csv")]
        for name in sorted(names, key=lambda name: "_Removed" in name):
            try:
                contract.list_of(name)
            except ValueError as error:
                raise InputInvalid("The file is none of DROP.", [FieldError(name, str(error))]) from None
            with path.open("rb") if archive is None else archive.open(name) as content:
                yield name, io.TextIOWrapper(content, encoding="utf-8-sig", newline="")


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile | None]:
    if path.suffix.lower() != ".zip":
        yield None
        return
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise InputInvalid("The archive cannot be read.", [FieldError(path.name, "expected ZIP")]) from None
    with archive:
        yield archive


def _batches(name: str, file: IO[str]) -> Iterator[list[dict[str, str]]]:
    """Yield batches of a file's lines in the form that `load` expects. Raises `InputInvalid`, naming the line."""
    expected = _COLUMNS if contract.list_of(name) is not None else _OF_REMOVED
    reader, batch = csv.reader(file, strict=True), list[dict[str, str]]()
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        if header != expected:
            raise InputInvalid(
                "The file is none of DROP.",
                [FieldError(f"{name}, line 1", f"expected the columns {', '.join(expected)}")],
            )
        for cells in reader:
            line = dict(zip(("id", "hash", "list_type"), cells, strict=False))
            if len(cells) != len(expected):
                raise _wrong(name, reader.line_num)
            try:
                contract.LineIn.model_validate(line)
            except pydantic.ValidationError:
                raise _wrong(name, reader.line_num) from None
            batch.append(line)
            if len(batch) == contract.MAX_LINES:
                yield batch
                batch = []
    except (csv.Error, UnicodeDecodeError):
        raise _wrong(name, reader.line_num + 1) from None
    if batch:
        yield batch


def _wrong(name: str, number: int) -> InputInvalid:
    return InputInvalid(
        "The file is none of DROP.",
        [FieldError(f"{name}, line {number}", "expected an ID of 12 letters and digits, and a SHA-256 in base64")],
    )
