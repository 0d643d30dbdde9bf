"""The file of the tombstones: lines that are appended, each with a keyed hash of itself and of the line before.

What was changed, put elsewhere, doubled, or cut out of the middle is noticed; a last line that a crash cut short is
none. Verification goes by the bytes as they lie there, and parses nothing but the first line.
"""

import dataclasses
import datetime
import itertools
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from app.deletion.restoration import Remembered
from app.errors import TombstonesDamaged
from app.vault.files import created, locked, replace

GENESIS = "0" * 64
"""The predecessor that the first line hashes."""
_TAIL = 2**16
_END = re.compile(rb',"hash":"([0-9a-f]{64})"\}\Z')


class Fingerprints(Protocol):
    """A maker of keyed hashes, such as the keys of an installation."""

    def fingerprint(self, *parts: bytes) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version, about to be published: of which model, by which mechanism, on which data, and the steps of its run."""

    version_id: str
    model_id: str
    dataset_id: str
    mechanism: dict[str, Any]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """The installation's signature about the head of a tenant's chain, as the database has it."""

    number: int
    log: str
    tenant_id: str
    sequence: int
    hash: str
    jws: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`number`: of the event of the database that it tells of, or the last one before it, which is the request `of`'s;
    `signed`: the same of what was signed about chains.

    `begun`: the file `file` was written from the database, with all that it knew at `at`. `restored`: the database was,
    up to this event. `dropped`: whatever happened before `at` is not remembered: `count` lines of the file `file`, the
    last of which had the hash `until` (None: the lines that are left were chained anew), and `heads` were the newest of
    their chains. `retired`: the id of a model or a dataset."""

    kind: Literal["begun", "request", "published", "retired", "signed", "restored", "dropped"]
    number: int
    at: datetime.datetime
    of: str | None = None
    signed: int = 0
    head: Signed | None = None
    request: Remembered | None = None
    release: Release | None = None
    retired: str | None = None
    file: str | None = None
    begun: datetime.datetime | None = None
    count: int | None = None
    until: str | None = None
    heads: tuple[Signed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A part of the file from its beginning on: so many `lines`, those among them that were dropped, and so many bytes,
    and the hash of the last line."""

    lines: int
    bytes: int
    hash: str


NOTHING = Extent(lines=0, bytes=0, hash=GENESIS)


class Journal:
    """The file. Raises `TombstonesDamaged`, or `OSError` where it cannot be read or written."""

    def __init__(self, path: Path, keys: Fingerprints) -> None:
        self.path = path
        self._keys = keys

    def append(self, found: Callable[[Line | None], Sequence[Line]]) -> int:
        """Add what `found` says comes after the last line, durably; returns how many lines that were. One process at a
        time."""
        with locked(self.path.parent), self._file() as file:
            last, previous = self._last(file)
            lines = found(last)
            left = memoryview(b"".join(self._written(lines, previous)))  # at once, at the end
            while left:  # a disk that is getting full takes a part, and then says so
                left = left[os.write(file.fileno(), left) :]
            if lines:
                os.fsync(file.fileno())
        return len(lines)

    def heads(self) -> list[Signed]:
        """The newest of each chain that the file tells of, but for those of before the last restore."""
        found: dict[tuple[str, str], Signed] = {}
        for line in self.lines():
            found = with_heads(found, line)
        return list(found.values())

    def start(self, lines: Callable[[], Iterable[Line]], *, at: datetime.datetime) -> None:
        """Write a file that is not there, or in which nothing is, with these lines: whole, or not at all."""
        with locked(self.path.parent):
            with self._file() as file:
                if self._last(file)[0] is not None:
                    return
            first = Line(kind="begun", number=0, at=at, file=f"fil_{secrets.token_hex(10)}")
            self._write_anew(self._written(itertools.chain([first], lines()), GENESIS))

    def lines(self) -> Iterator[Line]:
        """All lines, from the first on; none where there is no file."""
        return (line for line, _ in self.entries())

    def entries(self) -> Iterator[tuple[Line, Extent]]:
        """All lines, each with how far the file reaches up to there."""
        return ((_parsed(self.path, written), extent) for written, extent in self._walk(NOTHING))

    def extent(self, *, since: Extent = NOTHING) -> Extent:
        """Measure the file: every line of it, or every one after `since`, is what was written, where it was."""
        reached = since
        for _, extent in self._walk(since):
            reached = extent
        return reached

    def ends(self) -> tuple[Line, Line, Extent] | None:
        """The first line, the last one, and how far the file reaches, verified throughout; None where it has none."""
        first: bytes | None = None
        last, reached = b"", NOTHING
        for last, reached in self._walk(NOTHING):  # noqa: B007  the last of them is wanted
            first = first or last
        return (_parsed(self.path, first), _parsed(self.path, last), reached) if first else None

    def drop(self, *, before: datetime.datetime) -> bool:
        """Forget what happened before that time, but for the last line; whether anything was. The lines that are left
        stay as they are, after one that says what is gone."""
        with locked(self.path.parent):
            gone, kept = _Gone(at=before), None
            for line, extent in self.entries():
                if line.kind in ("begun", "dropped"):
                    gone = gone.with_head(line, extent)
                    continue
                if kept is not None:
                    gone = gone.with_line(*kept)
                if line.at >= before:
                    break
                kept = line, extent
            if gone.last is None:
                return False
            head = self._written([gone.line(gone.last)], GENESIS)
            self._write_anew(itertools.chain(head, self._bytes(since=gone.extent.bytes)))
            return True

    def _write_anew(self, content: Iterable[bytes]) -> None:
        changing = self.path.with_name(f".{self.path.name}.next")
        changing.unlink(missing_ok=True)
        with created(changing) as file:
            file.writelines(content)
        replace(changing, self.path)

    def _bytes(self, *, since: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(since)
            yield from (line for line in file if line.endswith(b"\n"))

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
            self._require_torn(torn, what="its last line")
            os.ftruncate(file.fileno(), size - len(torn))
        if not whole:
            return None, GENESIS
        written = whole.rpartition(b"\n")[2]
        own = self._hash_of(written)
        if own is None:
            raise _damaged(self.path, "its last line")
        return _parsed(self.path, written), own

    def _walk(self, since: Extent) -> Iterator[tuple[bytes, Extent]]:
        """Every line after `since`, without its end, and how far the file reaches with it."""
        lines, offset, previous = since.lines, since.bytes, since.hash
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(offset)
            for written in file:
                where = f"line {lines + 1} (byte {offset})"
                if not written.endswith(b"\n"):
                    self._require_torn(written, what=where)
                    return
                own = self._hash_of(written[:-1])
                if own is None or b'"previous":"%s"' % previous.encode() not in written:
                    raise _damaged(self.path, where)
                lines, previous = lines + 1, own
                if offset == 0:
                    first = _parsed(self.path, written)
                    if first.until is not None and first.count is not None:
                        lines, previous = first.count, first.until
                offset += len(written)
                yield written[:-1], Extent(lines=lines, bytes=offset, hash=previous)

    def _require_torn(self, written: bytes, *, what: str) -> None:
        """Require that what does not end as a line does was cut short: one that is whole was, and its end was
        changed."""
        if self._hash_of(written[:-1]) is not None:
            raise _damaged(self.path, what)

    def _written(self, lines: Iterable[Line], previous: str) -> Iterator[bytes]:
        for line in lines:
            body = {
                "kind": line.kind,
                "number": line.number,
                "at": line.at.isoformat(),
                "of": line.of,
                "signed": line.signed or None,
                "head": line.head and dataclasses.asdict(line.head),
                "heads": [dataclasses.asdict(head) for head in line.heads] or None,
                "request": line.request and line.request.to_json(),
                "release": line.release and dataclasses.asdict(line.release),
                "retired": line.retired,
                "file": line.file,
                "begun": line.begun and line.begun.isoformat(),
                "count": line.count,
                "until": line.until,
                "previous": previous,
            }
            text = _canonical({name: value for name, value in body.items() if value is not None})
            previous = self._hash(text)
            yield b'%s,"hash":"%s"}\n' % (text[:-1], previous.encode())

    def _hash_of(self, written: bytes) -> str | None:
        """The hash that a line states, if it is its own."""
        stated = _END.search(written)
        if stated is None:
            return None
        own = self._hash(written[: stated.start()] + b"}")
        return own if own == stated[1].decode() else None

    def _hash(self, text: bytes) -> str:
        return self._keys.fingerprint(b"tombstone", text)


def with_heads(found: dict[tuple[str, str], Signed], line: Line) -> dict[tuple[str, str], Signed]:
    """The newest heads by chain and tenant, after one more line."""
    if line.kind == "restored":
        return {}
    told = (*line.heads, *([line.head] if line.head else []))
    return found | {(head.log, head.tenant_id): head for head in told} if told else found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gone:
    """The lines that are to be dropped, from the first on: how far they reach, and the `last` of them that tells of
    anything."""

    at: datetime.datetime
    extent: Extent = NOTHING
    last: Line | None = None
    file: str | None = None
    begun: datetime.datetime | None = None
    heads: dict[tuple[str, str], Signed] = dataclasses.field(default_factory=dict)

    def with_head(self, line: Line, extent: Extent) -> "_Gone":
        """With a line that says what the file is."""
        begun = line.at if line.kind == "begun" else line.begun
        return dataclasses.replace(
            self,
            at=self.at if line.kind == "begun" else max(self.at, line.at),
            extent=extent,
            file=line.file or self.file,
            begun=begun or self.begun,
            heads=with_heads(self.heads, line),
        )

    def with_line(self, line: Line, extent: Extent) -> "_Gone":
        """With a line that tells of something."""
        return dataclasses.replace(self, last=line, extent=extent, heads=with_heads(self.heads, line))

    def line(self, last: Line) -> Line:
        """The line that stands in their place and says so."""
        return Line(
            kind="dropped",
            number=last.number,
            of=last.of,
            signed=last.signed,
            heads=tuple(self.heads.values()),
            at=self.at,
            file=self.file,
            begun=self.begun,
            count=self.extent.lines,
            until=self.extent.hash,
        )


def _parsed(path: Path, written: bytes) -> Line:
    try:
        body = json.loads(written)
        return Line(
            kind=body["kind"],
            number=body["number"],
            at=datetime.datetime.fromisoformat(body["at"]),
            of=body.get("of"),
            signed=body.get("signed", 0),
            head=Signed(**body["head"]) if body.get("head") else None,
            heads=tuple(Signed(**head) for head in body.get("heads", ())),
            request=Remembered.from_json(body["request"]) if body.get("request") else None,
            release=Release(**body["release"]) if body.get("release") else None,
            retired=body.get("retired"),
            file=body.get("file"),
            begun=datetime.datetime.fromisoformat(body["begun"]) if body.get("begun") else None,
            count=body.get("count"),
            until=body.get("until"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, "a line of another release") from error


def _damaged(path: Path, where: str) -> TombstonesDamaged:
    return TombstonesDamaged(
        f"{path}, {where}: it was changed, has lost lines, or belongs to another installation; put back a copy that is "
        "whole. Nobody is erased until then."
    )


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
