"""Files that list people: which column says what, and a request for each line.

Nothing here quotes the file, whose first line may be a person when a header was forgotten.
"""

import csv
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lethe.batches import NewRequest
from lethe.contract.problems import FieldError, InputInvalid

_SHA256 = re.compile("[0-9a-f]{64}")
_SUBJECTS = ("subject_id", "subject_sha256")
_FIELDS = (
    *_SUBJECTS,
    "aliases",
    "regulation",
    "ground",
    "external_id",
    "submitted_at",
    "callback_url",
    "refers_to",
    "dataset_ids",
    "identity_verified",
)
_LISTED = frozenset({"aliases", "dataset_ids"})
_LONGEST_ID = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFile:
    """`places`: in which cell of a line each field is. `sha256`: of the file."""

    path: Path
    places: Mapping[str, int]
    has_header: bool
    num_lines: int
    sha256: str

    @classmethod
    def opened(cls, path: Path, columns: Mapping[str, str]) -> Self:
        """`columns`: the header of each field that has another name in this file.

        A file whose first line is a SHA-256 alone has no header, and one hash on each line. Raises `InputInvalid`.
        """
        if wrong := columns.keys() - set(_FIELDS):
            raise _unusable(f"Expected one of {', '.join(_FIELDS)} for --column", ", ".join(sorted(wrong)))
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
        """The same for the same file from the same source, read in the same way."""
        said = [self.sha256, source or "", *(f"{field}={place}" for field, place in sorted(self.places.items()))]
        return hashlib.sha256("\n".join(said).encode()).hexdigest()

    def requests(self, *, regulation: str) -> Iterator[tuple[int, NewRequest]]:
        """The request of each line, with the number of the line. One that names nobody says nothing at all, and the
        gateway will refuse it."""
        lines = _lines(self.path)
        if self.has_header:
            next(lines)
        for line, cells in lines:
            yield line, self._request(cells, regulation)

    def _request(self, cells: list[str], regulation: str) -> NewRequest:
        if len(cells) <= max(self.places.values()):
            return NewRequest()
        said: dict[str, Any] = {field: cells[place].strip() for field, place in self.places.items()}
        said = {field: text for field, text in said.items() if text}
        if "subject_sha256" in said:
            said["subject_sha256"] = said["subject_sha256"].lower()
        for field in _LISTED & said.keys():
            said[field] = said[field].split(";")
        if "identity_verified" in said:
            said["identity_verified"] = {"true": True, "false": False}.get(said["identity_verified"].lower(), "")
        return NewRequest(**({"regulation": regulation} | said))  # type: ignore[typeddict-item]


def fault_of(request: NewRequest) -> str | None:
    """Name the fault in whom a request is about, as far as can be told without a gateway."""
    if ("subject_id" in request) == ("subject_sha256" in request):
        return "expected either subject_id or subject_sha256"
    if "subject_sha256" in request and not _SHA256.fullmatch(request["subject_sha256"]):
        return "expected 64 hexadecimal digits"
    if len(request.get("subject_id", "")) > _LONGEST_ID:
        return f"expected at most {_LONGEST_ID} characters"
    return None


def _places(header: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    names = [name.strip() for name in header]
    named = {field: columns.get(field, field) for field in _FIELDS}
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
    """The cells of each line that is not empty, with its number. Raises `InputInvalid` for what cannot be read."""
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


def _unusable(said: str, where: str) -> InputInvalid:
    return InputInvalid(f"{said} ({where}).", [FieldError(where, said)])
