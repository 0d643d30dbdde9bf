"""The tombstones: a file apart from database and backups that remembers who asked to be forgotten.

A line for each thing that happened to a request, appended within about a second, and before the person's rows are
touched: whom it is about (by the keyed hash that stands for them everywhere), where, and by when. And a line for each
version, before it is published: what it gives away counts, whatever is restored later; and one for each model and
dataset that was retired, before it is destroyed. Events are numbered in the order in which they were committed, because
there is one writer at a time: none comes late, and the number of the last line says where to go on. So are the signed
heads of audit logs and ledgers, which are kept here too: somebody who rewrites the database alone contradicts them.
"""

import dataclasses
import datetime
import heapq
import time
from collections.abc import Iterable, Iterator

from sqlalchemy.orm import Session

from app.audit import repository as audit_repository
from app.backup import repository
from app.backup.journal import Journal, Line, Release, Signed
from app.config import Settings
from app.db import now
from app.db.tables import Checkpoint
from app.errors import DatabasePutBack
from app.installations import Installation
from app.keys import Keys

_AT_ONCE = 500


def journal(installation: Installation) -> Journal:
    return Journal(installation.settings.resolved_tombstones(), installation.keys)


def record(installation: Installation) -> None:
    """Remember everything that was committed up to now. May be called by anybody, at any time, again and again.

    Raises `DatabasePutBack` where the file knows what the database does not, `TombstonesDamaged`, `OSError`.
    """
    _catch_up(installation)


def record_release(installation: Installation, release: Release) -> None:
    """Remember a version before it is published, after everything else: one that never came is counted too, against us.
    Raises as `record`."""
    _catch_up(installation, release)


def _catch_up(installation: Installation, release: Release | None = None) -> None:
    """Write down what is new, and at its end, at once with it, the `release`."""
    file = journal(installation)
    is_done = is_new = False

    def next_ones(last: Line | None) -> list[Line]:
        nonlocal is_done, is_new
        is_new = last is None
        if last is None:
            return []
        with installation.database.reading() as session:
            _check(session, last)
            found = [
                *_requests(session, after=last.number, limit=_AT_ONCE),
                *_heads_after(session, last.signed),
            ]
            is_done = len(found) < _AT_ONCE
            if is_done and release is not None:
                found.append(Line(kind="published", number=0, at=now(session), release=release))
            return list(_in_order(found, number=last.number, of=last.of, signed=last.signed))

    while True:
        began = time.monotonic()
        file.append(next_ones)
        if is_done:
            return
        if is_new:
            _begin(installation, file)
        time.sleep(time.monotonic() - began)  # who catches up leaves others their time


def record_restored(installation: Installation, *, signed: int | None = None) -> None:
    """Go on from the events that the restored database has, and from what was signed up to number `signed` (None: all
    that it has)."""

    def restored(_last: Line | None) -> list[Line]:
        with installation.database.reading() as session:
            number = repository.last_event(session)
            event = repository.event(session, number)
            of = event.request_id if event else None
            last = audit_repository.last_checkpoint(session)
            known = signed if signed is not None else last.number if last else 0
            return [Line(kind="restored", number=number, of=of, signed=known, at=now(session))]

    journal(installation).append(restored)


def kept_heads(settings: Settings) -> list[Signed]:
    """The newest head of each chain that was signed since the last restore, as the tombstones have it: somebody who can
    write to the database alone does not reach them. None where there is no file. Raises `TombstonesDamaged`."""
    keys = Keys(settings.data_dir / "keys")
    if not keys.paths()["subject.key"].exists():
        return []
    return Journal(settings.resolved_tombstones(), keys).heads()


def require_same_database(installation: Installation) -> None:
    """Raises `DatabasePutBack` where the last line tells of what the database does not know: nothing of such a database
    is signed. `TombstonesDamaged`, `OSError`."""

    def nothing(last: Line | None) -> list[Line]:
        with installation.database.reading() as session:
            _check(session, last)
        return []

    journal(installation).append(nothing)


def _begin(installation: Installation, file: Journal) -> None:
    """Write a file that is new, or was lost, with all that the database knows, in the order in which it happened."""
    with installation.database.reading() as session:
        file.start(lambda: _anew(session), at=now(session))


def _anew(session: Session) -> Iterator[Line]:
    """All versions, all that was retired, and all requests; and that nothing is known of people whom the database does
    not know any more."""
    forgotten = repository.last_unknown(session)
    if forgotten is not None:
        yield Line(kind="dropped", number=0, at=forgotten)
    releases = (
        Line(kind="published", number=0, at=published_at, release=Release(**release))
        for published_at, release in sorted(repository.releases(session), key=lambda one: one[0])
    )
    retired = (Line(kind="retired", number=0, at=at, retired=one) for at, one in repository.retired(session))
    heads = [_signed(head) for head in repository.newest_checkpoints(session)]
    lines = heapq.merge(releases, retired, heads, _requests(session, after=0), key=lambda one: one.at)
    yield from _in_order(lines, number=0, of=None, signed=0)


def _in_order(lines: Iterable[Line], *, number: int, of: str | None, signed: int) -> Iterator[Line]:
    """Each line with the numbers that were reached with it."""
    for line in lines:
        if line.kind == "request":
            number, of = line.number, line.of
        signed = line.head.number if line.head else signed
        yield dataclasses.replace(line, number=number, of=of, signed=signed)


def _heads_after(session: Session, number: int) -> Iterator[Line]:
    """The heads that were signed after that: with the head of a ledger the version that it accounts for, and with that
    of an audit log what was retired since the one before."""
    found = audit_repository.checkpoints_after(session, number=number, limit=_AT_ONCE)
    for checkpoint in found if number else repository.newest_checkpoints(session):
        release = repository.release_at(session, checkpoint)
        yield dataclasses.replace(_signed(checkpoint), release=Release(**release) if release else None)
        for retired_at, one in repository.retired_until(session, checkpoint, is_first=not number):
            yield Line(kind="retired", number=0, at=retired_at, retired=one)


def _signed(row: Checkpoint) -> Line:
    head = Signed(
        number=row.number, log=row.log, tenant_id=row.tenant_id, sequence=row.sequence, hash=row.hash, jws=row.jws
    )
    return Line(kind="signed", number=0, at=row.signed_at, head=head)


def _requests(session: Session, *, after: int, limit: int | None = None) -> Iterator[Line]:
    """The events of requests after that event."""
    while True:
        found = repository.telling_events(session, after=after, limit=_AT_ONCE)
        for number, happened_at, request in found:
            yield Line(kind="request", number=number, at=happened_at, of=request.id, request=request)
        if len(found) < _AT_ONCE or limit is not None:
            return
        after = found[-1][0]


def drop_old(installation: Installation) -> None:
    """Forget what is older than any backup that somebody would restore, where a setting says how old that is."""
    days = installation.settings.tombstone_days
    if days is not None:
        with installation.database.reading() as session:
            before = now(session) - datetime.timedelta(days=days)
        journal(installation).drop(before=before)


def _check(session: Session, last: Line | None) -> None:
    """Require that this is the database whose events were written down, not an earlier state of it."""
    if last is None:
        return
    event = repository.event(session, last.number) if last.number else None
    knows_event = last.number == 0 or (event is not None and event.request_id == last.of)
    knows_signed = last.signed == 0 or audit_repository.checkpoint(session, last.signed) is not None
    if not (knows_event and knows_signed):
        raise DatabasePutBack(
            "The tombstones tell of requests, or of signed heads, that the database does not know: somebody removed "
            "them, or it was put back by something else than `lethe restore`, with people in it who were forgotten. "
            "Back it up, and restore that with the tombstones."
        )
