"""Append-only file of tombstones. Each line carries a keyed hash of itself and the previous line.

The hashes reveal lines that were changed, moved, repeated or removed. A last line truncated by a crash is ignored.
Verification hashes the stored bytes and parses only the first line.
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

from app.deletion.remembered import Remembered
from app.errors import TombstonesDamaged
from app.vault.store import created, locked, replace

GENESIS = "0" * 64
"""Previous hash of the first line."""
_TAIL = 2**16
_END = re.compile(rb',"hash":"([0-9a-f]{64})"\}\Z')


class Fingerprints(Protocol):
    """Anything that computes keyed hashes, such as an installation's keys."""

    def fingerprint(self, *parts: bytes) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Version about to be published, with its model, dataset and mechanism, and the number of steps in its run."""

    version_id: str
    model_id: str
    dataset_id: str
    mechanism: dict[str, Any]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSignature:
    """Installation's signature on the head of a tenant's chain, as stored in the database."""

    number: int
    log: str
    tenant_id: str
    sequence: int
    hash: str
    jws: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """Line of the journal. `number` is the database event that the line records, or else the latest event before it;
    `of` is that event's request. `signed` is the checkpoint recorded, or else the latest one before it.

    Kind `begun`: the file `file` was written from the database as of `at`. Kind `restored`: the database was restored
    up to this event. Kind `dropped`: the line replaces `count` lines of the file `file`, for events before `at`. The
    last of these lines had the hash `until` (None if the remaining lines were rechained), and `heads` were the newest
    heads of their chains. `retired` is the id of a model or dataset."""

    kind: Literal["begun", "request", "published", "retired", "signed", "restored", "dropped"]
    number: int
    at: datetime.datetime
    of: str | None = None
    signed: int = 0
    head: HeadSignature | None = None
    request: Remembered | None = None
    release: Release | None = None
    retired: str | None = None
    file: str | None = None
    begun: datetime.datetime | None = None
    count: int | None = None
    until: str | None = None
    heads: tuple[HeadSignature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Prefix of the file: its number of `lines`, including dropped ones, its length in bytes, and the hash of its last
    line."""

    lines: int
    bytes: int
    hash: str


NOTHING = Extent(lines=0, bytes=0, hash=GENESIS)


class Journal:
    """Tombstone file. Methods raise `TombstonesDamaged`, or `OSError` if the file cannot be accessed."""

    def __init__(self, path: Path, keys: Fingerprints) -> None:
        self.path = path
        self._keys = keys

    def append(self, next_lines: Callable[[JournalLine | None], Sequence[JournalLine]]) -> int:
        """Call `next_lines` with the last line and append the result, durably and while holding a lock that excludes
        other processes. Return the number of lines appended."""
        with locked(self.path.parent), self._file() as file:
            last, previous = self._last(file)
            lines = next_lines(last)
            remaining = memoryview(b"".join(self._encoded(lines, previous)))
            # A disk that runs full accepts some of the bytes before it reports the error.
            while remaining:
                remaining = remaining[os.write(file.fileno(), remaining) :]
            if lines:
                os.fsync(file.fileno())
        return len(lines)

    def heads(self) -> list[HeadSignature]:
        """Return the newest recorded head of each chain since the last restoration."""
        by_chain: dict[tuple[str, str], HeadSignature] = {}
        for line in self.lines():
            by_chain = with_heads(by_chain, line)
        return list(by_chain.values())

    def start(self, lines: Callable[[], Iterable[JournalLine]], *, at: datetime.datetime) -> None:
        """Create a missing or empty file atomically, with a `begun` line and `lines`. A file with lines is kept."""
        with locked(self.path.parent):
            with self._file() as file:
                if self._last(file)[0] is not None:
                    return
            first = JournalLine(kind="begun", number=0, at=at, file=f"fil_{secrets.token_hex(10)}")
            self._rewrite(self._encoded(itertools.chain([first], lines()), GENESIS))

    def lines(self) -> Iterator[JournalLine]:
        """Yield all lines in order; nothing if the file is missing."""
        return (line for line, _ in self.entries())

    def entries(self) -> Iterator[tuple[JournalLine, Extent]]:
        """Yield all lines in order, each with the extent of the file up to its end."""
        return ((_parsed(self.path, line), extent) for line, extent in self._walk(NOTHING))

    def extent(self, *, since: Extent = NOTHING) -> Extent:
        """Verify every line after `since`, by default the whole file, and return the extent of the file."""
        reached = since
        for _, extent in self._walk(since):
            reached = extent
        return reached

    def ends(self) -> tuple[JournalLine, JournalLine, Extent] | None:
        """Verify the file, and return its first line, last line and extent; None if it has no lines."""
        first: bytes | None = None
        last, reached = b"", NOTHING
        for last, reached in self._walk(NOTHING):  # noqa: B007  used after the loop
            first = first or last
        return (_parsed(self.path, first), _parsed(self.path, last), reached) if first else None

    def drop(self, *, before: datetime.datetime) -> bool:
        """Drop the lines before a time, except the last such line, and return True if any were dropped. The remaining
        lines stay unchanged, after a new first line that describes the dropped lines."""
        with locked(self.path.parent):
            dropped, pending = _Dropped(at=before), None
            for line, extent in self.entries():
                if line.kind in ("begun", "dropped"):
                    dropped = dropped.with_head(line, extent)
                    continue
                if pending is not None:
                    dropped = dropped.with_line(*pending)
                if line.at >= before:
                    break
                pending = line, extent
            if dropped.last is None:
                return False
            head = self._encoded([dropped.line(dropped.last)], GENESIS)
            self._rewrite(itertools.chain(head, self._bytes(since=dropped.extent.bytes)))
            return True

    def _rewrite(self, content: Iterable[bytes]) -> None:
        new = self.path.with_name(f".{self.path.name}.next")
        new.unlink(missing_ok=True)
        with created(new) as file:
            file.writelines(content)
        replace(new, self.path)

    def _bytes(self, *, since: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(since)
            yield from (line for line in file if line.endswith(b"\n"))

    def _file(self) -> IO[bytes]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        return open(descriptor, "r+b", buffering=0)

    def _last(self, file: IO[bytes]) -> tuple[JournalLine | None, str]:
        """Truncate an incomplete line left by a crash, and return the last line with its hash; (None, GENESIS) if the
        file has no lines."""
        size, tail_size = os.fstat(file.fileno()).st_size, _TAIL
        while True:
            start = max(0, size - tail_size)
            tail = os.pread(file.fileno(), size - start, start)
            complete, _, torn = tail.rpartition(b"\n")
            if start == 0 or b"\n" in complete:
                break
            tail_size *= 2
        if torn:
            self._require_torn(torn, where="its last line")
            os.ftruncate(file.fileno(), size - len(torn))
        if not complete:
            return None, GENESIS
        line = complete.rpartition(b"\n")[2]
        own = self._hash_of(line)
        if own is None:
            raise _damaged(self.path, "its last line")
        return _parsed(self.path, line), own

    def _walk(self, since: Extent) -> Iterator[tuple[bytes, Extent]]:
        """Verify and yield every line after `since`, without its line break, with the file's extent up to its end."""
        lines, offset, previous = since.lines, since.bytes, since.hash
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(offset)
            for line in file:
                where = f"line {lines + 1} (byte {offset})"
                if not line.endswith(b"\n"):
                    self._require_torn(line, where=where)
                    return
                own = self._hash_of(line[:-1])
                if own is None or b'"previous":"%s"' % previous.encode() not in line:
                    raise _damaged(self.path, where)
                lines, previous = lines + 1, own
                if offset == 0:
                    first = _parsed(self.path, line)
                    if first.until is not None and first.count is not None:
                        lines, previous = first.count, first.until
                offset += len(line)
                yield line[:-1], Extent(lines=lines, bytes=offset, hash=previous)

    def _require_torn(self, line: bytes, *, where: str) -> None:
        """Raise `TombstonesDamaged` if a line without its line break is otherwise complete. Such a line was not
        truncated by a crash; its last byte was changed."""
        if self._hash_of(line[:-1]) is not None:
            raise _damaged(self.path, where)

    def _encoded(self, lines: Iterable[JournalLine], previous: str) -> Iterator[bytes]:
        for line in lines:
            values = _shallow(line) | {"previous": previous, "signed": line.signed or None}
            text = _canonical({name: value for name, value in values.items() if value not in (None, ())})
            previous = self._hash(text)
            yield b'%s,"hash":"%s"}\n' % (text[:-1], previous.encode())

    def _hash_of(self, line: bytes) -> str | None:
        """Return the hash stated in a line; None if it is missing or wrong."""
        stated = _END.search(line)
        if stated is None:
            return None
        own = self._hash(line[: stated.start()] + b"}")
        return own if own == stated[1].decode() else None

    def _hash(self, text: bytes) -> str:
        return self._keys.fingerprint(b"tombstone", text)


def with_heads(heads: dict[tuple[str, str], HeadSignature], line: JournalLine) -> dict[tuple[str, str], HeadSignature]:
    """Return the newest head of each chain and tenant, given one more line; a restoration discards earlier heads."""
    if line.kind == "restored":
        return {}
    newer = (*line.heads, *([line.head] if line.head else []))
    return heads | {(head.log, head.tenant_id): head for head in newer} if newer else heads


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dropped:
    """Lines to drop from the start of the file: their extent, and the `last` line that records an event."""

    at: datetime.datetime
    extent: Extent = NOTHING
    last: JournalLine | None = None
    file: str | None = None
    begun: datetime.datetime | None = None
    heads: dict[tuple[str, str], HeadSignature] = dataclasses.field(default_factory=dict)

    def with_head(self, line: JournalLine, extent: Extent) -> "_Dropped":
        """Add a `begun` or `dropped` line, which describes the file itself."""
        begun = line.at if line.kind == "begun" else line.begun
        return dataclasses.replace(
            self,
            at=self.at if line.kind == "begun" else max(self.at, line.at),
            extent=extent,
            file=line.file or self.file,
            begun=begun or self.begun,
            heads=with_heads(self.heads, line),
        )

    def with_line(self, line: JournalLine, extent: Extent) -> "_Dropped":
        """Add a line that records an event."""
        return dataclasses.replace(self, last=line, extent=extent, heads=with_heads(self.heads, line))

    def line(self, last: JournalLine) -> JournalLine:
        """Return the `dropped` line that replaces these lines."""
        return JournalLine(
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


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "at": datetime.datetime.fromisoformat,
    "begun": datetime.datetime.fromisoformat,
    "head": lambda head: HeadSignature(**head),
    "heads": lambda heads: tuple(HeadSignature(**head) for head in heads),
    "request": Remembered.from_json,
    "release": lambda release: Release(**release),
}


def _parsed(path: Path, line: bytes) -> JournalLine:
    try:
        body = json.loads(line)
        values = {field.name: body[field.name] for field in dataclasses.fields(JournalLine) if field.name in body}
        parsed = {name: parse(values[name]) for name, parse in _PARSERS.items() if name in values}
        return JournalLine(**values | parsed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, "a line of another release") from error


def _damaged(path: Path, where: str) -> TombstonesDamaged:
    return TombstonesDamaged(
        f"{path}, {where}: it was changed, has lost lines, or belongs to another installation; put back a copy that is "
        "whole. Nobody is erased until then."
    )


def _canonical(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    return text.encode()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else _shallow(value)


def _shallow(value: Any) -> dict[str, Any]:
    # `dataclasses.asdict` would copy the whole value, which takes most of the time of a line.
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
