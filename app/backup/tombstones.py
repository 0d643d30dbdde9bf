"""The tombstones: a file apart from database and backups that remembers who asked to be forgotten.

A line for each thing that happened to a request, appended within about a second, and before the person's rows are
touched: whom it is about (by the keyed hash that stands for them everywhere), where, and by when. And a line for each
version, before it is published: what it gives away counts, whatever is restored later; and one for each model and
dataset that was retired, before it is destroyed. Each line names the
keyed hash of the line before, and has one of its own: what was changed, or cut out of the middle, is noticed; a last
line that a crash cut short is none. Events are numbered in the order in which they were committed, because writers take
turns: none comes late, and the number of the last line says where to go on.
"""

import dataclasses
import datetime
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

from sqlalchemy.orm import Session

from app.backup import repository
from app.db import now
from app.deletion.restoration import Remembered
from app.errors import DatabasePutBack, TombstonesDamaged
from app.installation import Installation
from app.keys import Keys
from app.registry.files import created, locked, replace

_GENESIS = "0" * 64
_AT_ONCE = 500
_TAIL = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version, about to be published: of which model, by which mechanism, on which data, and the steps of its run."""

    version_id: str
    model_id: str
    dataset_id: str
    mechanism: dict[str, Any]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`number`: of the event of the database that it tells of, or the last one before it, which is the request `of`'s.
    `restored`: the database was, up to this event; `dropped`: whatever happened before `at` is not remembered;
    `retired`: the id of a model or a dataset."""

    kind: Literal["request", "published", "retired", "restored", "dropped"]
    number: int
    at: datetime.datetime
    of: str | None = None
    request: Remembered | None = None
    release: Release | None = None
    retired: str | None = None


class Journal:
    """The file. Raises `TombstonesDamaged`, or `OSError` where it cannot be read or written."""

    def __init__(self, path: Path, keys: Keys) -> None:
        self.path = path
        self._keys = keys

    def append(self, found: Callable[[Line | None], Sequence[Line]]) -> int:
        """Add what `found` says comes after the last line, durably; returns how many lines that were. One process at a
        time."""
        with locked(self.path.parent), self._file() as file:
            last, previous = self._last(file)
            lines = found(last)
            if lines:
                file.write(self._written(lines, previous))  # at once, at the end
                os.fsync(file.fileno())
        return len(lines)

    def lines(self) -> Iterator[Line]:
        """All lines, from the first on; none where there is no file."""
        previous = _GENESIS
        for written in self._raw():
            line, previous = self._read(written, previous=previous)
            yield line

    def drop(self, *, before: datetime.datetime) -> bool:
        """Forget what happened before that time, but for the last line; whether anything was."""
        with locked(self.path.parent):
            lines = (line for line in self.lines() if line.kind != "dropped")
            first, second = next(lines, None), next(lines, None)
            if first is None or second is None or first.at >= before:
                return False
            changing = self.path.with_name(f".{self.path.name}.next")
            changing.unlink(missing_ok=True)
            with created(changing) as file:
                previous = self._add(file, Line(kind="dropped", number=0, at=before), _GENESIS)
                for line, after in pairwise(itertools.chain([first, second], lines, [None])):
                    if line is not None and (line.at >= before or after is None):
                        previous = self._add(file, line, previous)
            replace(changing, self.path)
            return True

    def _add(self, file: IO[bytes], line: Line, previous: str) -> str:
        written = self._written([line], previous)
        file.write(written)
        return str(json.loads(written)["hash"])

    def _file(self) -> IO[bytes]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        return open(descriptor, "r+b", buffering=0)

    def _last(self, file: IO[bytes]) -> tuple[Line | None, str]:
        """The last line and its hash, after cutting off what a crash left of another one."""
        size, wanted = os.fstat(file.fileno()).st_size, _TAIL
        while True:
            start = max(0, size - wanted)
            tail = os.pread(file.fileno(), size - start, start)
            whole, _, torn = tail.rpartition(b"\n")
            if start == 0 or b"\n" in whole:
                break
            wanted *= 2
        if torn:
            os.ftruncate(file.fileno(), size - len(torn))
        if not whole:
            return None, _GENESIS
        line, own = self._read(whole.rpartition(b"\n")[2], previous=None)
        return line, own

    def _raw(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))
        except FileNotFoundError:
            return

    def _written(self, lines: Sequence[Line], previous: str) -> bytes:
        written = []
        for line in lines:
            body = {
                "kind": line.kind,
                "number": line.number,
                "at": line.at.isoformat(),
                "of": line.of,
                "request": line.request and line.request.to_json(),
                "release": line.release and dataclasses.asdict(line.release),
                **({"retired": line.retired} if line.retired else {}),
                "previous": previous,
            }
            text = _canonical(body)
            previous = self._hash(text)
            written.append(b'%s,"hash":"%s"}\n' % (text[:-1], previous.encode()))
        return b"".join(written)

    def _read(self, written: bytes, *, previous: str | None) -> tuple[Line, str]:
        """The line and its hash; `previous`: that of the line before, where it is known."""
        try:
            body = json.loads(written)
            own = body.pop("hash")
            if own != self._hash(_canonical(body)) or previous not in (None, body["previous"]):
                raise ValueError("It is not what was written, or not where.")
            line = Line(
                kind=body["kind"],
                number=body["number"],
                at=datetime.datetime.fromisoformat(body["at"]),
                of=body["of"],
                request=body["request"] and Remembered.from_json(body["request"]),
                release=body["release"] and Release(**body["release"]),
                retired=body.get("retired"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TombstonesDamaged(
                f"{self.path} was changed, has lost lines, or belongs to another installation; put back a copy that is "
                "whole. Nobody is erased until then."
            ) from error
        return line, own

    def _hash(self, text: bytes) -> str:
        return self._keys.fingerprint(b"tombstone", text)


def journal(at: Installation) -> Journal:
    return Journal(at.settings.resolved_tombstones(), at.keys)


def record(at: Installation) -> None:
    """Remember everything that was committed up to now. May be called by anybody, at any time, again and again.

    Raises `DatabasePutBack` where the file knows what the database does not, `TombstonesDamaged`, `OSError`.
    """

    def next_ones(last: Line | None) -> list[Line]:
        with at.database.reading() as session:
            _check(session, last)
            after = last.number if last else 0
            return [
                *([] if last else _anew(session)),
                *(
                    Line(kind="request", number=number, at=happened_at, of=request.id, request=request)
                    for number, happened_at, request in repository.telling_events(session, after=after, limit=_AT_ONCE)
                ),
            ]

    while True:
        began = time.monotonic()
        if journal(at).append(next_ones) < _AT_ONCE:
            return
        time.sleep(time.monotonic() - began)  # who catches up leaves others their time


def record_release(at: Installation, release: Release) -> None:
    """Remember a version before it is published: one that never came is counted too, against us. Raises as `record`."""

    def published(last: Line | None) -> list[Line]:
        with at.database.reading() as session:
            _check(session, last)
            number, of = (last.number, last.of) if last else (0, None)
            return [Line(kind="published", number=number, of=of, at=now(session), release=release)]

    journal(at).append(published)


def record_retired(at: Installation, retired_id: str, *, retired_at: datetime.datetime | None) -> None:
    """Remember that a model or a dataset was retired, before it is destroyed. Raises as `record`."""

    def retired(last: Line | None) -> list[Line]:
        with at.database.reading() as session:
            _check(session, last)
            happened_at = retired_at or now(session)
        number, of = (last.number, last.of) if last else (0, None)
        return [Line(kind="retired", number=number, of=of, at=happened_at, retired=retired_id)]

    record(at)  # a file that is new begins with all that it would have
    journal(at).append(retired)


def record_restored(at: Installation) -> None:
    """Go on from the events that the restored database has."""

    def restored(_last: Line | None) -> list[Line]:
        with at.database.reading() as session:
            number = repository.last_event(session)
            event = repository.event(session, number)
            return [Line(kind="restored", number=number, of=event.request_id if event else None, at=now(session))]

    journal(at).append(restored)


def _anew(session: Session) -> list[Line]:
    """What a file begins with that is new, or was lost: all versions; and that it knows nothing of those people whom
    the database does not know any more either."""
    forgotten = repository.last_unknown(session)
    releases = [
        Line(kind="published", number=0, at=published_at, release=Release(**release))
        for published_at, release in repository.releases(session)
    ]
    retired = [
        Line(kind="retired", number=0, at=retired_at, retired=one) for retired_at, one in repository.retired(session)
    ]
    return [*([Line(kind="dropped", number=0, at=forgotten)] if forgotten else []), *releases, *retired]


def drop_old(at: Installation) -> None:
    """Forget what is older than any backup that somebody would restore, where a setting says how old that is."""
    days = at.settings.tombstone_days
    if days is not None:
        with at.database.reading() as session:
            before = now(session) - datetime.timedelta(days=days)
        journal(at).drop(before=before)


def _check(session: Session, last: Line | None) -> None:
    """That this is the database whose events were written down, not an earlier state of it."""
    if last is None or last.number == 0:
        return
    event = repository.event(session, last.number)
    if event is None or event.request_id != last.of:
        raise DatabasePutBack(
            "The tombstones tell of requests that the database does not know: it was put back by something else than "
            "`lethe restore`, and people who were forgotten may be in it. Back it up, and restore that with them."
        )


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
