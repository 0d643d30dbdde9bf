"""California's delete list: DROP lines, the people they match, and the statuses reported back.

A line matches everyone for whom its hash is stored under its list. Matching is a periodic job, so that it also finds
people who are loaded after the line. A line without a match is reported as not found only if all hashes under which the
list could name a person are known for every person.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.access import service as access
from app.audit import service as audit
from app.db import actor, bulk, now, tables
from app.deletion import completion, search_repository, service as deletion, suppression
from app.deletion.status import OPEN
from app.features.drop.tables import DropFile, DropHash, DropLine
from app.features.identities.tables import Identity
from lethe.contract import problems, sets
from lethe.features.drop import contract, standard
from lethe.features.identities.contract import CUSTOMER_ID, DEVICE, EMAIL, PHONE

SOURCE = "drop"
REGULATION = "ccpa"
LISTS_OF_KIND: Mapping[str, tuple[standard.DropList, ...]] = {
    EMAIL: (standard.DropList.EMAIL,),
    PHONE: (standard.DropList.PHONE,),
    DEVICE: (standard.DropList.MAID, standard.DropList.CTVID),
}
"""Lists that can name a person by each kind of identifier in the identity map."""
NOTHING_HELD = ""
_PAGE = 5000


class LineState(enum.StrEnum):
    """State of a DROP line. Its value is DROP's status code for the state, if DROP has one."""

    EXEMPTED = "2"
    DELETED = "3"
    OPTED_OUT = "4"
    NOT_FOUND = "5"
    REMOVED = "removed"
    MATCHING = "matching"
    OPEN = "open"
    CANCELLED = "cancelled"
    SEVERAL = "several"


ANSWERED = frozenset({LineState.EXEMPTED, LineState.DELETED, LineState.OPTED_OUT, LineState.NOT_FOUND})


def load(session: Session, file: str, lines: Mapping[str, str], *, num_lines: int | None) -> None:
    """Store a file's lines (keyed hashes by line ID) and, if given, the number of lines in the whole file. Repeating a
    load is a no-op, except that lines whose request was cancelled are matched again.

    Raises `InputInvalid` for an ID already stored with a different hash, and `DropUnanswered` if the tenant's policy
    requires an identity statement for every request.
    """
    tenant_id = actor(session).tenant_id
    if access.policy_of(session, tenant_id).identity == "statement":
        raise contract.DropUnanswered(
            "The policy requires an identity statement for each request, and DROP sends none."
        )
    present = _present(session, lines)
    if (stored := session.get(DropFile, (tenant_id, file))) is None:
        stored = DropFile(tenant_id=tenant_id, name=file, created_at=now(session))
        session.add(stored)
    stored.num_lines = stored.num_lines if num_lines is None else num_lines
    _insert(session, [(line_id, ref) for line_id, ref in lines.items() if line_id not in present], file=file)
    if moved := [line.line_id for line in present.values() if line.file != file]:
        session.execute(sa.update(DropLine).where(DropLine.line_id.in_(moved)).values(file=file))
    if led := [line.request_id for line in present.values() if line.request_id is not None]:
        cancelled = sa.select(tables.DeletionRequest.id).where(
            tables.DeletionRequest.id.in_(led), tables.DeletionRequest.status == sets.RequestStatus.CANCELLED
        )
        again = [line.line_id for line in present.values() if line.request_id in set(session.scalars(cancelled))]
        session.execute(sa.update(DropLine).where(DropLine.line_id.in_(again)).values(request_id=None))
    audit.record(session, "drop.loaded", file, lines=len(lines), new=len(lines) - len(present))


def remove(session: Session, file: str, lines: Mapping[str, str]) -> int:
    """Withdraw lines, loaded or not, with their requests and suppressions. Return the number of requests that cannot be
    withdrawn because the person's erasure has begun. Raises `InputInvalid` if a line's stored hash differs."""
    at, present, num_irrevocable = now(session), _present(session, lines), 0
    _insert(session, [(line_id, ref) for line_id, ref in lines.items() if line_id not in present], removed_at=at)
    taken = [line for line in present.values() if line.removed_at is None]
    for line in taken:
        line.removed_at = at
        request = None if line.request_id is None else session.get(tables.DeletionRequest, line.request_id)
        if request is None:
            continue
        try:
            if request.status in OPEN:
                deletion.withdraw(session, request, sets.RequestStatus.CANCELLED, verb="cancelled", discreet=False)
        except problems.TransitionForbidden:
            pass
        num_irrevocable += request.status in (*OPEN, sets.RequestStatus.COMPLETED)
        suppression.withdraw(session, request)
    audit.record(session, "drop.removed", file, lines=len(taken), irrevocable=num_irrevocable)
    return num_irrevocable


def _present(session: Session, lines: Mapping[str, str]) -> dict[str, DropLine]:
    """Return the lines that are already stored. Raises `InputInvalid` if one is stored with a different hash."""
    present: dict[str, DropLine] = {}
    for batch in bulk.in_parts(lines):
        present |= {
            line.line_id: line for line in session.scalars(sa.select(DropLine).where(DropLine.line_id.in_(batch)))
        }
    if wrong := [line_id for line_id, line in present.items() if line.hash_ref != lines[line_id]]:
        faults = [
            problems.FieldError(line_id, "came earlier with another hash")
            for line_id in sorted(wrong)[: contract.MAX_LISTED]
        ]
        raise problems.InputInvalid("Nothing was loaded: a DROP ID means one line.", faults)
    return present


def _insert(session: Session, lines: Sequence[tuple[str, str]], **values: object) -> None:
    plain = {"file": None, "request_id": None, "opted_out_at": None, "removed_at": None}
    own = {"tenant_id": actor(session).tenant_id} | plain | values
    bulk.store(session, DropLine, [own | {"line_id": line_id, "hash_ref": ref} for line_id, ref in lines])


def note_people(session: Session, number: int) -> None:
    """Record in the audit log that people's hashes were loaded."""
    audit.record(session, "drop.people_loaded", SOURCE, people=number)


def note_answer(session: Session, file: str) -> None:
    """Record in the audit log that the answer to a DROP file was read."""
    audit.record(session, "drop.answered", file)


def num_loaded(session: Session, file: str) -> int:
    """Return the number of lines whose most recent file is `file`."""
    return session.scalars(sa.select(sa.func.count()).select_from(DropLine).where(DropLine.file == file)).one()


def state_hashes(session: Session, hashes: Sequence[tuple[str, str, standard.DropList, Sequence[str]]]) -> None:
    """Store keyed hashes of identifiers for DROP lists. Each identifier is given by pseudonym and kind. An empty
    sequence of hashes states that the data that the list hashes is not held for the identifier."""
    tenant_id = actor(session).tenant_id
    rows = [
        {"tenant_id": tenant_id, "subject_ref": subject_ref, "kind": kind, "list_type": drop_list, "hash_ref": hash_ref}
        for subject_ref, kind, drop_list, refs in hashes
        for hash_ref in refs or (NOTHING_HELD,)
    ]
    bulk.store(session, DropHash, rows, unless_there=True)


_num_people = (
    sa.select(sa.func.count(sa.func.coalesce(Identity.person, DropHash.subject_ref).distinct()))
    .select_from(DropHash)
    .outerjoin(Identity, Identity.subject_ref == DropHash.subject_ref)
    .where(DropHash.hash_ref == DropLine.hash_ref)
    .correlate(DropLine)
    .scalar_subquery()
)
_unmatched = sa.and_(
    DropLine.request_id.is_(None), DropLine.removed_at.is_(None), DropLine.opted_out_at.is_(None), _num_people == 1
)
_state: sa.ColumnElement[str] = sa.case(
    (DropLine.removed_at.is_not(None), LineState.REMOVED),
    (DropLine.opted_out_at.is_not(None), LineState.OPTED_OUT),
    (tables.DeletionRequest.status == sets.RequestStatus.COMPLETED, LineState.DELETED),
    (tables.DeletionRequest.status == sets.RequestStatus.REJECTED, LineState.EXEMPTED),
    (tables.DeletionRequest.status == sets.RequestStatus.CANCELLED, LineState.CANCELLED),
    (DropLine.request_id.is_not(None), LineState.OPEN),
    (_num_people == 0, LineState.NOT_FOUND),
    (_num_people == 1, LineState.MATCHING),
    else_=LineState.SEVERAL,
)


def tenants_to_match(session: Session) -> list[str]:
    """Return the ids of tenants with lines that match exactly one person but have no request yet."""
    return list(session.scalars(sa.select(DropLine.tenant_id).where(_unmatched).distinct()))


def match(session: Session, *, after: str, limit: int) -> str | None:
    """Create requests for up to `limit` lines with IDs greater than `after` that match exactly one person. Return the
    last ID, or None if no further lines follow. A line whose request is refused stays unchanged."""
    query = sa.select(DropLine).where(_unmatched, DropLine.line_id > after).order_by(DropLine.line_id).limit(limit)
    lines = list(session.scalars(query))
    by = actor(session)
    named: dict[str, tuple[str, str]] = {}
    for batch in bulk.in_parts({line.hash_ref for line in lines}):
        hashes = sa.select(DropHash.hash_ref, DropHash.subject_ref, DropHash.kind).where(DropHash.hash_ref.in_(batch))
        # One person's identifiers may share a hash; in this order, the choice among them is always the same.
        named |= {
            ref: (subject_ref, kind)
            for ref, subject_ref, kind in session.execute(hashes.order_by(DropHash.subject_ref))
        }
    policy = access.policy_of(session, by.tenant_id)
    drafts = [
        deletion.RequestDraft(
            by=by,
            policy=policy,
            discreet=False,
            subject_ref=named[line.hash_ref][0],
            kind=None if named[line.hash_ref][1] == CUSTOMER_ID else named[line.hash_ref][1],
            dataset_ids=None,
            regulation=REGULATION,
            ground=None,
            submitted_at=None,
            external_id=line.line_id,
            metadata={},
            source=SOURCE,
        )
        for line in lines
    ]
    for line, result in zip(lines, deletion.submit_all(session, drafts) if drafts else (), strict=True):
        if isinstance(result, completion.Submitted):
            line.request_id = result.request.id
    return lines[-1].line_id if len(lines) == limit else None


def files(session: Session, *, limit: int) -> list[DropFile]:
    """Return up to `limit` DROP files, newest first."""
    return list(session.scalars(sa.select(DropFile).order_by(DropFile.created_at.desc(), DropFile.name).limit(limit)))


def counts(session: Session, names: Sequence[str]) -> dict[str, Counter[str]]:
    """Count each file's lines by state."""
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    # The state is computed in a subquery because PostgreSQL does not group by an expression with parameters.
    states = (
        sa.select(DropLine.file.label("file"), _state.label("state"))
        .outerjoin(tables.DeletionRequest, tables.DeletionRequest.id == DropLine.request_id)
        .where(DropLine.file.in_(names))
        .subquery()
    )
    query = sa.select(states.c.file, states.c.state, sa.func.count()).group_by(states.c.file, states.c.state)
    for file, state, count in session.execute(query):
        by_file[file][state] = count
    return by_file


def lines_of(
    session: Session, file: str, *, waiting: bool, limit: int | None = None
) -> Iterator[tuple[str, str, str | None]]:
    """Yield each line's ID, state and request id, ordered by ID; with `waiting`, only lines that have no status."""
    after, remaining = "", limit
    while remaining is None or remaining > 0:
        query = (
            sa.select(DropLine.line_id, _state.label("state"), DropLine.request_id)
            .outerjoin(tables.DeletionRequest, tables.DeletionRequest.id == DropLine.request_id)
            .where(DropLine.file == file, DropLine.line_id > after)
        )
        if waiting:
            query = query.where(_state.not_in([*ANSWERED, LineState.REMOVED]))
        rows = session.execute(query.order_by(DropLine.line_id).limit(min(remaining or _PAGE, _PAGE))).all()
        if not rows:
            return
        for row in rows:
            yield row.line_id, row.state, row.request_id
        after = rows[-1].line_id
        remaining = None if remaining is None else remaining - len(rows)


def known(session: Session, drop_list: standard.DropList) -> contract.ListOut:
    """Count the people whose hashes for a list are known, and the people and identifiers whose hashes are unknown."""
    of_list = DropHash.list_type == drop_list
    other = aliased(Identity)
    people = (
        sa.select(sa.func.count(sa.func.coalesce(Identity.person, DropHash.subject_ref).distinct()))
        .select_from(DropHash)
        .outerjoin(Identity, Identity.subject_ref == DropHash.subject_ref)
        .where(of_list)
    )
    mapped = sa.select(sa.func.count(Identity.person.distinct())).where(
        ~sa.exists()
        .where(DropHash.subject_ref == other.subject_ref, other.person == Identity.person, of_list)
        .correlate(Identity)
    )
    unmapped = (
        sa.select(sa.func.count(tables.Record.subject_ref.distinct()))
        .join(tables.Dataset, tables.Dataset.id == tables.Record.dataset_id)
        .where(
            tables.Record.subject_ref.is_not(None),
            tables.Dataset.destroyed_at.is_(None),
            ~sa.exists().where(Identity.subject_ref == tables.Record.subject_ref),
            ~sa.exists().where(DropHash.subject_ref == tables.Record.subject_ref, of_list),
        )
    )
    unhashed = sa.select(sa.func.count(Identity.subject_ref)).where(
        Identity.kind.in_([kind for kind, lists in LISTS_OF_KIND.items() if drop_list in lists]),
        ~sa.exists().where(DropHash.subject_ref == Identity.subject_ref, of_list),
    )
    return contract.ListOut(
        list_type=drop_list,
        num_people=session.scalars(people).one(),
        num_unstated=session.scalars(mapped).one() + session.scalars(unmapped).one(),
        num_unhashed=session.scalars(unhashed).one(),
    )


def check_answered(session: Session, file: str, drop_list: standard.DropList | None) -> None:
    """Raise `DropUnanswered` unless every line has a status and no match can have been missed for lack of a hash."""
    stored = session.get(DropFile, (actor(session).tenant_id, file))
    if stored is None or drop_list is None:
        raise contract.DropUnanswered(
            "No such file was loaded, or it is a file of removed lines, which takes no answer."
        )
    by_state = counts(session, [file])[file]
    if stored.num_lines is None:
        raise contract.DropUnanswered("The file is loaded in part. Load the whole file.")
    if stored.num_lines != by_state.total():
        raise contract.DropUnanswered(
            "{loaded} lines of the file are loaded, of {lines}. Load the whole file, or answer the later file that "
            "brought the same lines.",
            loaded=by_state.total(),
            lines=stored.num_lines,
        )
    waiting = {state: count for state, count in sorted(by_state.items()) if state not in (*ANSWERED, LineState.REMOVED)}
    if waiting:
        raise contract.DropUnanswered(
            "Some lines have no status yet: {waiting}. GET /v1/drop lists them.",
            waiting=", ".join(f"{count} {state}" for state, count in waiting.items()),
        )
    gaps = known(session, drop_list)
    if by_state[LineState.NOT_FOUND] and (gaps.num_unstated or gaps.num_unhashed or not gaps.num_people):
        raise contract.DropUnanswered(
            "{missing} lines match nobody, but it is unknown under which hashes the list {list} may name {unstated} "
            "people and {unhashed} identifiers that were loaded before, or as a hash; {known} people are known. Load "
            "their hashes, or state that nothing is held (lethe drop people).",
            missing=by_state[LineState.NOT_FOUND],
            list=drop_list,
            unstated=gaps.num_unstated,
            unhashed=gaps.num_unhashed,
            known=gaps.num_people,
        )


def opt_out(session: Session, line_ids: Sequence[str]) -> int:
    """Record the opt-out of everyone matched by the lines. Raises `DropUnanswered` if one does not match several."""
    query = (
        sa.select(DropLine, _state)
        .outerjoin(tables.DeletionRequest, tables.DeletionRequest.id == DropLine.request_id)
        .where(DropLine.line_id.in_(line_ids))
    )
    rows = session.execute(query).all()
    if len(rows) < len(set(line_ids)) or any(
        state not in (LineState.SEVERAL, LineState.OPTED_OUT) for _, state in rows
    ):
        raise contract.DropUnanswered("Only lines that match several people are opted out; nothing was changed.")
    for line, _ in rows:
        line.opted_out_at = line.opted_out_at or now(session)
    audit.record(session, "drop.opted_out", SOURCE, lines=len(rows))
    return len(rows)


def _open_about(subject_ref: sa.orm.InstrumentedAttribute[str]) -> sa.ColumnElement[bool]:
    linked = sa.select(tables.RequestAlias.request_id).where(tables.RequestAlias.subject_ref == subject_ref)
    named = sa.or_(tables.DeletionRequest.subject_ref == subject_ref, tables.DeletionRequest.id.in_(linked))
    return sa.exists().where(named, tables.DeletionRequest.status.in_(OPEN))


_FORGOTTEN = (
    sa.select(DropHash.subject_ref)
    .join(tables.Suppression, tables.Suppression.subject_ref == DropHash.subject_ref)
    .where(
        tables.Suppression.dataset_id == search_repository.ANYWHERE,
        ~sa.exists().where(Identity.subject_ref == DropHash.subject_ref),
        ~_open_about(DropHash.subject_ref),
    )
    .distinct()
)


def is_anybody_forgotten(session: Session) -> bool:
    """Return True if there are still hashes of people who have been forgotten."""
    return session.scalars(_FORGOTTEN.limit(1)).first() is not None


def drop_forgotten(session: Session, *, limit: int) -> int:
    """Delete the hashes of up to `limit` identifiers of forgotten people, and return the number of identifiers."""
    refs = list(session.scalars(_FORGOTTEN.limit(limit)))
    session.execute(sa.delete(DropHash).where(DropHash.subject_ref.in_(refs)))
    return len(refs)
