"""Commands for files that list people; their requests are sent in batches.

A list file is never quoted: if its header is missing, its first line may name a person.
"""

import csv
import hashlib
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console

from lethe.cli import derived, gateway
from lethe.contract.problems import FieldError, IdempotencyConflict, InputInvalid
from lethe.features.lists.client import NewRequest
from lethe.features.lists.contract import CSV_FIELDS, BatchItemOut

_Repeatable = Annotated[
    str | None, typer.Option("--idempotency-key", help="Your own key, so that another process can repeat the call")
]
_SHA256 = re.compile("[0-9a-f]{64}")
_SUBJECTS = ("subject_id", "subject_sha256")
_LISTED = frozenset({"aliases", "dataset_ids"})
_MAX_ID_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFile:
    """File that lists people. `places` maps each field to its column index; `sha256` is the file's digest."""

    path: Path
    places: Mapping[str, int]
    has_header: bool
    num_lines: int
    sha256: str

    @classmethod
    def opened(cls, path: Path, columns: Mapping[str, str]) -> Self:
        """Read and check a file. `columns` maps fields to their headers in this file if the two differ.

        A file whose first line is just a SHA-256 has no header and one hash per line. Raises `InputInvalid`.
        """
        if wrong := columns.keys() - set(CSV_FIELDS):
            raise _unusable(f"Expected one of {', '.join(CSV_FIELDS)} for --column", ", ".join(sorted(wrong)))
        first = next((cells for _, cells in _lines(path)), None)
        if first is None:
            raise _unusable("There is no request in the file", path.name)
        has_header = bool(columns) or not (len(first) == 1 and _SHA256.fullmatch(first[0].strip().lower()))
        places = _places(first, columns) if has_header else {"subject_sha256": 0}
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        count = sum(1 for _ in _lines(path)) - has_header
        if count == 0:
            raise _unusable("There is no request in the file", path.name)
        return cls(path=path, places=places, has_header=has_header, num_lines=count, sha256=digest)

    def idempotency_key(self, source: str | None) -> str:
        """Return a key that is the same whenever the same columns of the same file are sent from the same source."""
        parts = [self.sha256, source or "", *(f"{field}={place}" for field, place in sorted(self.places.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def requests(self, *, regulation: str) -> Iterator[tuple[int, NewRequest]]:
        """Yield each line's number and request. A line that names no person yields an empty request, which the gateway
        refuses."""
        lines = _lines(self.path)
        if self.has_header:
            next(lines)
        for line, cells in lines:
            yield line, self._request(cells, regulation)

    def _request(self, cells: list[str], regulation: str) -> NewRequest:
        if len(cells) <= max(self.places.values()):
            return NewRequest()
        fields: dict[str, Any] = {field: cells[place].strip() for field, place in self.places.items()}
        fields = {field: text for field, text in fields.items() if text}
        if "subject_sha256" in fields:
            fields["subject_sha256"] = fields["subject_sha256"].lower()
        for field in _LISTED & fields.keys():
            fields[field] = fields[field].split(";")
        if "identity_verified" in fields:
            fields["identity_verified"] = {"true": True, "false": False}.get(fields["identity_verified"].lower(), "")
        return NewRequest(**({"regulation": regulation} | fields))  # type: ignore[typeddict-item]


def fault_of(request: NewRequest) -> str | None:
    """Return the fault in how a request names its person, or None if no fault can be detected without the gateway."""
    if ("subject_id" in request) == ("subject_sha256" in request):
        return "expected either subject_id or subject_sha256"
    if "subject_sha256" in request and not _SHA256.fullmatch(request["subject_sha256"]):
        return "expected 64 hexadecimal digits"
    if len(request.get("subject_id", "")) > _MAX_ID_LENGTH:
        return f"expected at most {_MAX_ID_LENGTH} characters"
    return None


def _places(header: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    names = [name.strip() for name in header]
    named = {field: columns.get(field, field) for field in CSV_FIELDS}
    if any(column not in names for column in columns.values()):
        raise _unusable("The header has no such column", ", ".join(sorted(set(columns.values()) - set(names))))
    if any(names.count(column) > 1 for column in named.values()):
        raise _unusable("The header has a column of a request twice", "header")
    if any(field in columns for field in _SUBJECTS):
        named = {field: column for field, column in named.items() if field in columns or field not in _SUBJECTS}
    places = {field: names.index(column) for field, column in named.items() if column in names}
    if not any(field in places for field in _SUBJECTS):
        raise _unusable("Say with --column where the people are, such as subject_sha256=HASHED_EMAIL", "header")
    return places


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of each non-empty line. Raises `InputInvalid` if the file cannot be read."""
    with path.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, cells
        except UnicodeDecodeError:
            raise _unusable("The file is not UTF-8", path.name) from None
        except csv.Error:
            raise _unusable("The file cannot be read as CSV", f"line {reader.line_num + 1}") from None


def _unusable(message: str, where: str) -> InputInvalid:
    return InputInvalid(f"{message} ({where}).", [FieldError(where, message)])


_BATCH = 1000
_RETRY_SECONDS = 120.0
"""Long, because lists are often sent overnight: wait until the gateway is back or the key's rate limit permits."""
_MAX_PRINTED_LINES = 10


@derived.GROUPS["deletion_requests"].app.command("import")
def request_import(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Hashes, one per line, or CSV with a header")
    ],
    source: Annotated[str | None, typer.Option(help="Name of the list, to find its requests later")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=COLUMN: column of subject_id, subject_sha256 or another request field"),
    ] = None,
    regulation: Annotated[str, typer.Option(help="For lines that do not name one")] = "gdpr",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing; report what would be sent")] = False,
    out: Annotated[
        Path | None, typer.Option(help="CSV file for each request's line, status, id, code and detail")
    ] = None,
    url: gateway.Url = None,
    key: gateway.Key = None,
) -> None:
    """Request deletion of everyone on a list; exit with code 1 if a line was refused. No identifiers are printed.

    If interrupted, repeat the command: within a week, the same file from the same source creates no request twice.
    """
    list_file = ListFile.opened(file, dict(_pair(pair) for pair in column or ()))
    if dry_run:
        _print_faults(list_file, regulation)
        return
    lines: deque[int] = deque()

    def requests() -> Iterator[NewRequest]:
        for line, body in list_file.requests(regulation=regulation):
            lines.append(line)
            yield body

    accepted, refused = 0, []
    with (
        _advising_on_conflict(),
        gateway.connect(url, key, retry_seconds=_RETRY_SECONDS) as client,
        _results(out) as write,
        gateway.bar() as progress,
    ):
        for item in client.deletion_requests.create_many(
            requests(),
            source=source,
            idempotency_key=list_file.idempotency_key(source),
            batch_size=_BATCH,
            progress=lambda accepted, refused: progress("sending", accepted + refused, list_file.num_lines),
        ):
            line = lines.popleft()
            write(line, item)
            accepted += item.accepted
            if not item.accepted:
                refused.append((line, item.code))
    gateway.console.print(f"{accepted} accepted, {len(refused)} refused")
    _fail(refused)


@derived.made("deletion_requests.export", retry_seconds=_RETRY_SECONDS)
def request_export(call: derived.CommandCall, out: Annotated[Path, typer.Option(help="CSV file to write")]) -> None:
    """Save the outcomes of all requests, or only of the requests that match every given filter."""
    call.client.deletion_requests.export(out, **call.arguments)
    gateway.console.print(str(out), markup=False)


@derived.made("deletion_requests.create_from_csv", retry_seconds=_RETRY_SECONDS)
def request_create_from_csv(
    call: derived.CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV whose header names request fields")],
    idempotency_key: _Repeatable = None,
) -> None:
    """Request deletion of everyone in a CSV file with one call. For lists of any length, use `request import`."""
    gateway.show(
        call.client.deletion_requests.create_from_csv(
            file.read_bytes(), idempotency_key=idempotency_key, **call.arguments
        )
    )


def _pair(text: str) -> tuple[str, str]:
    field, equals, column = text.partition("=")
    if not (equals and field and column):
        raise typer.BadParameter("Expected FIELD=COLUMN, such as subject_id=email.")
    return field, column


def _print_faults(list_file: ListFile, regulation: str) -> None:
    faults: list[tuple[int, str | None]] = []
    count = 0
    for line, body in list_file.requests(regulation=regulation):
        count += 1
        if fault := fault_of(body):
            faults.append((line, fault))
    gateway.console.print(f"{count} requests in {math.ceil(count / _BATCH)} batches; nothing was sent")
    _fail(faults)


def _fail(refused: list[tuple[int, str | None]]) -> None:
    """If any line was refused, print the numbers of the first such lines and exit with code 1."""
    if refused:
        terminal = Console(stderr=True, soft_wrap=True)
        for line, why in refused[:_MAX_PRINTED_LINES]:
            terminal.print(f"line {line}: {why}", markup=False, highlight=False)
        if len(refused) > _MAX_PRINTED_LINES:
            terminal.print(f"and {len(refused) - _MAX_PRINTED_LINES} more", highlight=False)
        raise typer.Exit(1)


@contextmanager
def _advising_on_conflict() -> Iterator[None]:
    """If a file conflicts with one sent before, replace the error with a conflict that states the remedy."""
    try:
        yield
    except IdempotencyConflict:
        message = "This file was sent from this source with other options; name another --source to ask again."
        raise IdempotencyConflict(message) from None


@contextmanager
def _results(out: Path | None) -> Iterator[Any]:
    if out is None:
        yield lambda line, item: None
        return
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("line", "status", "id", "code", "detail"))

        def write(line: int, item: BatchItemOut) -> None:
            writer.writerow((line, item.status, item.id, item.code, item.detail))

        yield write
