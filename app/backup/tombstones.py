"""The tombstones: a file apart from database and backups that remembers who asked to be forgotten.

A line for each thing that happened to a request, appended within about a second, and before the person's rows are
touched: whom it is about (by the keyed hash that stands for them everywhere), where, and by when. And a line for each
version, before it is published: what it gives away counts, whatever is restored later; and one for each model and
dataset that was retired, before it is destroyed. Events are numbered in the order in which they were committed, because
writers take turns: none comes late, and the number of the last line says where to go on.
"""

import dataclasses
import datetime
import heapq
import time
from collections.abc import Iterator

from sqlalchemy.orm import Session

from app.backup import repository
from app.backup.journal import Journal, Line, Release
from app.db import now
from app.errors import DatabasePutBack
from app.installation import Installation

_AT_ONCE = 500


def journal(at: Installation) -> Journal:
    return Journal(at.settings.resolved_tombstones(), at.keys)


def record(at: Installation) -> None:
    """Remember everything that was committed up to now. May be called by anybody, at any time, again and again.

    Raises `DatabasePutBack` where the file knows what the database does not, `TombstonesDamaged`, `OSError`.
    """

    file = journal(at)
    is_new = False

    def next_ones(last: Line | None) -> list[Line]:
        nonlocal is_new
        is_new = last is None
        if last is None:
            return []
        with at.database.reading() as session:
            _check(session, last)
            return list(_requests(session, after=last.number, limit=_AT_ONCE))

    while True:
        began = time.monotonic()
        if file.append(next_ones) < _AT_ONCE and not is_new:
            return
        if is_new:
            _begin(at, file)
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


def _begin(at: Installation, file: Journal) -> None:
    """Write a file that is new, or was lost, with all that the database knows, in the order in which it happened."""
    with at.database.reading() as session:
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
    number, of = 0, None
    for line in heapq.merge(releases, retired, _requests(session, after=0), key=lambda one: one.at):
        if line.kind == "request":
            number, of = line.number, line.of
        yield dataclasses.replace(line, number=number, of=of)


def _requests(session: Session, *, after: int, limit: int | None = None) -> Iterator[Line]:
    """What happened to requests after that event."""
    while True:
        found = repository.telling_events(session, after=after, limit=_AT_ONCE)
        for number, happened_at, request in found:
            yield Line(kind="request", number=number, at=happened_at, of=request.id, request=request)
        if len(found) < _AT_ONCE or limit is not None:
            return
        after = found[-1][0]


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
