"""Erase people from a store, and search its files before and after the erasure.

Before the deletion, the search must find what the store returned about the person, and also the record of a made-up
person (the control), which is added beforehand and erased together with the person. Needles are kept in a journal until
`finish`, because after the deletion the store no longer returns anything to search for.
"""

import dataclasses
import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lethe.features.stores import reports, searching
from lethe.features.stores.needles import KINDS, Needle, StoreRecord, needles
from lethe.features.stores.store import CONTROL, Store, StoreError, StoreFile

_MAX_GHOSTS = 20
_LIVE_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghost:
    """Remains of a person's data: their kind, the file's name, and their byte offset in the file or in a decoded part
    of it."""

    kind: str
    file: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result for a person. By kind, `before` (the person) and `control` (the made-up person) count needles sought and
    found before the deletion; `after` counts both people's needles afterwards. `not_sought` counts needles that live
    records or chance could match. `files` has the files' number, size and digests; `ghosts` are remains."""

    store: dict[str, str]
    method: str
    records: int
    before: dict[str, dict[str, int]]
    control: dict[str, dict[str, int]]
    after: dict[str, dict[str, int]]
    not_sought: dict[str, int]
    files: dict[str, Any]
    ghosts: tuple[Ghost, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the finding without its ghosts, which are only for the store's owner."""
        document = dataclasses.asdict(self)
        del document["ghosts"]
        return document


@dataclass(slots=True, kw_only=True)
class _Sought:
    """Needle of a person or control. `was_found`: whether files contained it before; None if not yet searched."""

    needle: Needle
    is_control: bool
    was_found: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {"needle": self.needle.to_json(), "is_control": self.is_control, "was_found": self.was_found}


@dataclass(slots=True, kw_only=True)
class _JournalEntry:
    """Journal entry for a person and the made-up people added as controls."""

    person: list[str]
    controls: list[str]
    records: int
    sought: list[_Sought]


def erase(store: Store, people: Sequence[Sequence[str]], *, journal: Path) -> list[Finding]:
    """Erase people from a store and return a finding for each. Each person is given by all identifiers under which the
    store may have their records.

    `journal` is a file that other users cannot read. It keeps samples of the needles, so that a call repeated after a
    crash, or after ghosts were found, searches for the same needles; `finish` removes them.

    Raises:
        StoreError: if the store cannot be locked, read, searched or erased from. Repeat the call.
    """
    version = store.version()
    with store.held():
        entries = _read(journal)
        asked = [_begin(store, entries, list(person)) for person in people]
        _write(journal, entries)
        items = [item for entry in asked for item in entry.sought]
        hits_of, _ = search(store.files(), [item.needle for item in items])
        for place, item in enumerate(items):
            if item.was_found is None:
                item.was_found = place in hits_of
        _write(journal, entries)
        names = [name for entry in asked for name in (*entry.person, *entry.controls)]
        store.erase(names)
        if any(store.find(name) for name in names):
            raise StoreError("not_deleted", "The store still returns records that were deleted")
        hits_of, files = search(store.files(), [item.needle for item in items])
        shared = _shared(store.live(), [item.needle for item in items]) if hits_of else set()
    findings, start = [], 0
    for entry in asked:
        places = range(start, start + len(entry.sought))
        start += len(entry.sought)
        findings.append(
            _finding(
                entry,
                [
                    (item, _left(hits_of.get(place, []), place, shared))
                    for item, place in zip(entry.sought, places, strict=True)
                ],
                [place - places.start for place in places if _is_shared(items[place].needle, place, shared)],
                store={"kind": store.kind, "version": version},
                method=store.method,
                files=files,
            )
        )
    return findings


def finish(journal: Path, people: Sequence[Sequence[str]]) -> None:
    """Remove people from the journal once their findings have been reported."""
    left = [entry for entry in _read(journal) if not any(set(entry.person) & set(person) for person in people)]
    if left:
        _write(journal, left)
    else:
        journal.unlink(missing_ok=True)


def _begin(store: Store, entries: list[_JournalEntry], person: list[str]) -> _JournalEntry:
    """Return a person's journal entry after adding the store's records of the person and of a new control."""
    entry = next((candidate for candidate in entries if set(candidate.person) & set(person)), None)
    if entry is None:
        entry = _JournalEntry(person=[], controls=[], records=0, sought=[])
        entries.append(entry)
    entry.person = sorted({*entry.person, *person})
    control = f"{CONTROL}{secrets.token_hex(12)}"
    records = [record for name in entry.person for record in store.find(name)]
    entry.records = max(entry.records, len(records))
    try:
        store.plant(control)
    except StoreError as error:
        if error.code != "control_not_planted":
            raise
    entry.controls.append(control)
    known = {repr(item.needle.to_json()) for item in entry.sought}
    for is_control, of_one in ((False, needles(records, entry.person)), (True, needles(store.find(control), []))):
        entry.sought += [
            _Sought(needle=needle, is_control=is_control) for needle in of_one if repr(needle.to_json()) not in known
        ]
    return entry


Found = dict[int, list[tuple[int, str, str]]]
"""Matches keyed by needle index, each with the sample, the file and the position."""


def search(files: Iterable[StoreFile], sought: Sequence[Needle]) -> tuple[Found, dict[str, Any]]:
    """Return the positions of needles in the files, and the files' sizes and digests."""
    searcher, found, listed, seen = searching.Searcher(sought), Found(), [], Counter[tuple[int, int]]()
    for file in files:
        digest, size = hashlib.sha256(), [0]

        def counted(file: StoreFile = file, digest: Any = digest, size: list[int] = size) -> Iterator[bytes]:
            for chunk in file.chunks():
                digest.update(chunk)
                size[0] += len(chunk)
                yield chunk

        streams: list[tuple[str, Iterable[bytes]]] = [("", counted())]
        if file.decoded is not None:
            streams += [(f"{name}, ", [content]) for name, content in file.decoded()]
        for name, chunks in streams:
            for hit in searcher.hits(chunks):
                hits = found.setdefault(hit.needle, [])
                seen[hit.needle, hit.sample] += 1
                # A sample that occurs so often is in live records too, or its first positions are enough.
                if seen[hit.needle, hit.sample] <= _MAX_GHOSTS:
                    hits.append((hit.sample, file.name, f"{name}offset {hit.offset}"))
        listed.append([file.name if file.is_public else None, size[0], digest.hexdigest()])
    whole = json.dumps(listed, separators=(",", ":")).encode()
    return found, {
        "count": len(listed),
        "bytes": sum(size for _, size, _ in listed),
        "sha256": hashlib.sha256(whole).hexdigest(),
        "listed": listed[: reports.MAX_LISTED],
    }


def _shared(live: Iterable[StoreRecord], sought: Sequence[Needle]) -> set[tuple[int, int]]:
    """Return the needles and samples that also occur in live records."""
    searcher, shared, batch = searching.Searcher(sought), set[tuple[int, int]](), bytearray()
    for record in live:
        for text in (record.id or "", *record.texts):
            batch += (text if isinstance(text, bytes) else text.encode("utf8", "surrogatepass")) + b"\0"
        for vector in record.vectors:
            batch += vector.astype("<f8").tobytes()
        if len(batch) >= _LIVE_BYTES:
            shared |= {(hit.needle, hit.sample) for hit in searcher.hits([bytes(batch)])}
            batch.clear()
    return shared | {(hit.needle, hit.sample) for hit in searcher.hits([bytes(batch)])}


def _left(hits: list[tuple[int, str, str]], place: int, shared: set[tuple[int, int]]) -> list[tuple[str, str]]:
    return [(file, where) for sample, file, where in hits if (place, sample) not in shared]


def _is_shared(needle: Needle, place: int, shared: set[tuple[int, int]]) -> bool:
    return all((place, sample) in shared for sample in range(len(needle.samples)))


def _finding(
    entry: _JournalEntry, outcomes: Sequence[tuple[_Sought, list[tuple[str, str]]]], shared: Sequence[int], **about: Any
) -> Finding:
    real = [(item, left) for i, (item, left) in enumerate(outcomes) if item.needle.why is None and i not in shared]
    held = [(item, left) for item, left in real if item.needle.is_held]
    ghosts = [Ghost(kind=item.needle.kind, file=file, where=where) for item, left in real for file, where in left]
    untold = Counter(item.needle.kind for item, _ in outcomes) - Counter(item.needle.kind for item, _ in real)
    return Finding(
        records=entry.records,
        before=_counts((item, bool(item.was_found)) for item, _ in held if not item.is_control),
        control=_counts((item, bool(item.was_found)) for item, _ in held if item.is_control),
        after=_counts((item, bool(left)) for item, left in real),
        not_sought={kind: untold[kind] for kind in KINDS},
        ghosts=tuple(ghosts[:_MAX_GHOSTS]),
        **about,
    )


def _counts(outcomes: Iterable[tuple[_Sought, bool]]) -> dict[str, dict[str, int]]:
    counts = {kind: {"sought": 0, "found": 0} for kind in KINDS}
    for item, is_found in outcomes:
        counts[item.needle.kind]["sought"] += 1
        counts[item.needle.kind]["found"] += is_found
    return counts


def _read(journal: Path) -> list[_JournalEntry]:
    try:
        document = json.loads(journal.read_text())
        return [
            _JournalEntry(
                **entry
                | {
                    "sought": [
                        _Sought(**each | {"needle": Needle.from_json(each["needle"])}) for each in entry["sought"]
                    ]
                }
            )
            for entry in document
        ]
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, TypeError):
        raise StoreError(
            "journal_damaged", f"The journal {journal.name} cannot be read; what it sought is lost"
        ) from None


def _write(journal: Path, entries: Sequence[_JournalEntry]) -> None:
    """Replace the journal. Call this before changing the store."""
    document = [
        {
            "person": entry.person,
            "controls": entry.controls,
            "records": entry.records,
            "sought": [item.to_json() for item in entry.sought],
        }
        for entry in entries
    ]
    replace(journal, document)


def replace(path: Path, document: object) -> None:
    """Atomically replace a file with a JSON document, synced to disk and unreadable by other users."""
    new = path.with_name(f"{path.name}.new")
    number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
