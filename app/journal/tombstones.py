"""Tombstone journal: a file outside the database and its backups that records who has asked to be forgotten.

Each change to a request adds a line within about a second, and before the person's rows are edited. The line contains
the subject as a keyed hash, the datasets and the deadline. Each version adds a line before it is published, because a
release still counts whatever is restored later. Each retired model or dataset adds a line before it is destroyed. The
database has a single writer, so events are numbered in commit order, and the number in the last line shows where to
continue. The same applies to the signed heads of audit logs and ledgers. They are recorded too, so that rewriting only
the database is detected.
"""

import dataclasses
import datetime
import heapq
import time
from collections.abc import Iterable, Iterator

from sqlalchemy.orm import Session

from app import config, installations
from app.audit import repository as audit_repository
from app.db import now, tables
from app.journal import repository
from app.journal.journal import HeadSignature, Journal, JournalLine, Release
from app.keys import Keys
from lethe.contract.problems import DatabasePutBack

_AT_ONCE = 500


def journal(installation: installations.Installation) -> Journal:
    return Journal(installation.settings.resolved_tombstones(), installation.keys)


def record(installation: installations.Installation, release: Release | None = None) -> None:
    """Append everything committed so far to the journal, in batches. The last batch includes `release`, which is about
    to be published. If publication then fails, the version still counts as released, which errs on the safe side.
    Without a release, the call is idempotent. Any process can call this at any time.

    Raises `DatabasePutBack` if the file has events that the database lacks; also `TombstonesDamaged` and `OSError`.
    """
    file = journal(installation)
    is_done = is_new = False

    def next_batch(last: JournalLine | None) -> list[JournalLine]:
        nonlocal is_done, is_new
        is_new = last is None
        if last is None:
            return []
        is_done = not release and installation.database.is_ruled_out(_check, place=_place(last))
        if is_done:
            return []
        # Reading under the file's lock keeps another process from appending the same events in between.
        with installation.database.reading() as session:
            batch: list[JournalLine] = []
            if _check(session, _place(last)):
                batch += [*_requests(session, after=last.number, limit=_AT_ONCE), *_heads_after(session, last.signed)]
            is_done = len(batch) < _AT_ONCE
            if is_done and release is not None:
                batch.append(JournalLine(kind="published", number=0, at=now(session), release=release))
            return list(_numbered(batch, number=last.number, of=last.of, signed=last.signed))

    while True:
        began = time.monotonic()
        file.append(next_batch)
        if is_done:
            return
        if is_new:
            _begin(installation, file)
        # Leave the other users of the database as much time as the batch took.
        time.sleep(time.monotonic() - began)


def kept_heads(settings: config.Settings) -> list[HeadSignature]:
    """Return each chain's newest head in the journal, signed since the last restore; an empty list without a journal.
    An attacker with access only to the database cannot change these heads. Raises `TombstonesDamaged`."""
    keys = Keys(settings.data_dir / "keys")
    if not keys.paths()["subject.key"].exists():
        return []
    return Journal(settings.resolved_tombstones(), keys).heads()


def require_same_database(installation: installations.Installation) -> None:
    """Raise `DatabasePutBack` if the database lacks the events named in the journal's last line, in which case no heads
    may be signed. Also raises `TombstonesDamaged` and `OSError`."""

    def nothing(last: JournalLine | None) -> list[JournalLine]:
        if last is not None:
            with installation.database.reading() as session:
                _check(session, _place(last))
        return []

    journal(installation).append(nothing)


def _begin(installation: installations.Installation, file: Journal) -> None:
    """Write a new journal, or recreate a lost one, from the database in chronological order."""
    with installation.database.reading() as session:
        file.start(lambda: _all_lines(session), at=now(session))


def _all_lines(session: Session) -> Iterator[JournalLine]:
    """Yield the lines of all versions, retirements, heads and requests, preceded by a `dropped` line if the subjects of
    any requests have been erased from the database."""
    forgotten = repository.last_unknown(session)
    if forgotten is not None:
        yield JournalLine(kind="dropped", number=0, at=forgotten)
    releases = (
        JournalLine(kind="published", number=0, at=published_at, release=Release(**release))
        for published_at, release in sorted(repository.releases(session), key=lambda pair: pair[0])
    )
    retired = (JournalLine(kind="retired", number=0, at=at, retired=id_) for at, id_ in repository.retired(session))
    heads = [_signed(head) for head in repository.newest_checkpoints(session)]
    lines = heapq.merge(releases, retired, heads, _requests(session, after=0), key=lambda line: line.at)
    yield from _numbered(lines, number=0, of=None, signed=0)


def _numbered(lines: Iterable[JournalLine], *, number: int, of: str | None, signed: int) -> Iterator[JournalLine]:
    """Yield each line, stamped with the numbers of the latest event and checkpoint so far."""
    for line in lines:
        if line.kind == "request":
            number, of = line.number, line.of
        signed = line.head.number if line.head else signed
        yield dataclasses.replace(line, number=number, of=of, signed=signed)


def _heads_after(session: Session, number: int) -> Iterator[JournalLine]:
    """Yield the heads signed after checkpoint `number` or, if it is 0, only each chain's newest head. A ledger's head
    includes the version in its last entry; an audit log's head is followed by the retirements that it adds."""
    later = audit_repository.checkpoints_after(session, number=number, limit=_AT_ONCE)
    for checkpoint in later if number else repository.newest_checkpoints(session):
        release = repository.release_at(session, checkpoint)
        yield dataclasses.replace(_signed(checkpoint), release=Release(**release) if release else None)
        for retired_at, retired_id in repository.retired_until(session, checkpoint, is_first=not number):
            yield JournalLine(kind="retired", number=0, at=retired_at, retired=retired_id)


def _signed(row: tables.Checkpoint) -> JournalLine:
    head = HeadSignature(**{field.name: getattr(row, field.name) for field in dataclasses.fields(HeadSignature)})
    return JournalLine(kind="signed", number=0, at=row.signed_at, head=head)


def _requests(session: Session, *, after: int, limit: int | None = None) -> Iterator[JournalLine]:
    """Yield the lines of the journal's request events after event `after`; only the first batch if `limit` is given."""
    while True:
        batch = repository.telling_events(session, after=after, limit=_AT_ONCE)
        for number, happened_at, request in batch:
            yield JournalLine(kind="request", number=number, at=happened_at, of=request.id, request=request)
        if len(batch) < _AT_ONCE or limit is not None:
            return
        after = batch[-1][0]


def drop_old(installation: installations.Installation) -> None:
    """Drop journal lines older than `tombstone_days`, the maximum age of a restorable backup; None keeps all lines."""
    days = installation.settings.tombstone_days
    if days is not None:
        with installation.database.reading() as session:
            before = now(session) - datetime.timedelta(days=days)
        journal(installation).drop(before=before)


def _place(last: JournalLine) -> tuple[int, str | None, int]:
    """Return the event, its request, and the checkpoint that the journal's last line names."""
    return last.number, last.of, last.signed


def _check(session: Session, place: tuple[int, str | None, int]) -> bool:
    """Return True if the database contains anything newer than the `place` of the journal's last line. Raise
    `DatabasePutBack` if it lacks the events named in that line, as an earlier state of the database would."""
    knows, is_anything_later = repository.progress(session, *place)
    if not knows:
        raise DatabasePutBack(
            "The tombstones tell of requests, or of signed heads, that the database does not know: somebody removed "
            "them, or it was put back by something else than `lethe restore`, with people in it who were forgotten. "
            "Back it up, and restore that with the tombstones."
        )
    return is_anything_later
