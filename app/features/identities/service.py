"""The identity map: which identifiers belong to the same person, and which requests this affects.

The map stores connected components, not links: one person's identifiers share `Identity.person`. All of a person's
identifiers can thus be found with one statement, and the order in which data is loaded does not matter.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import actor, bulk, now, rare
from app.db.tables import Dataset, DeletionRequest, RequestAlias, Suppression, new_id
from app.deletion import completion, history, repository, search_repository, service, status, suppression
from app.features.identities.tables import Identity
from lethe.contract import problems, sets
from lethe.features.identities.contract import CUSTOMER_ID, MAX_IDENTIFIERS_OF_A_PERSON, PeopleJoined

_LISTED = 20
_ANY_IDENTITY = rare.Rare(Identity.person.is_not(None))
_ANY_KIND = rare.Rare(Dataset.subject_kind.is_not(None), Dataset.destroyed_at.is_(None))
_VERB = "identified"
Link = Sequence[tuple[str, str]]
"""Identifiers of one person, each as a pseudonym and a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Result of a load: the number of new identifiers, the number of people merged into another person, and the indexes
    of links that were not loaded because the person has been forgotten."""

    num_new: int
    num_joined: int
    suppressed: list[int]


@dataclass(slots=True, kw_only=True)
class Component:
    """One person according to the links and the identity map: the kind of each identifier (keyed by pseudonym), the
    people in the map to whom these identifiers belong, and the links' indexes."""

    kinds: dict[str, str] = field(default_factory=dict)
    people: set[str] = field(default_factory=set)
    links: list[int] = field(default_factory=list)


def components(links: Sequence[Link], people: Mapping[str, str]) -> list[Component]:
    """Group links into connected components. `people` maps each identifier that is in the identity map to its person.
    Links that name identifiers of the same person are in the same component."""
    parents: dict[str, str] = {}

    def root(node: str) -> str:
        parents.setdefault(node, node)
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for link in links:
        nodes = [ref for ref, _ in link] + [people[ref] for ref, _ in link if ref in people]
        first = root(nodes[0])
        for node in nodes[1:]:
            parents[root(node)] = first
    by_root: dict[str, Component] = defaultdict(Component)
    for index, link in enumerate(links):
        component = by_root[root(link[0][0])]
        component.links.append(index)
        component.kinds.update(link)
        component.people.update(people[ref] for ref, _ in link if ref in people)
    return list(by_root.values())


def load(session: Session, links: Sequence[Link], *, confirm_joins: bool, may_know: bool) -> Loaded:
    """Add all or none of the links to the identity map of the session's tenant. Repeating a load is a no-op.

    Two people are distinct if the map stores them as such, or if they have different customer ids that the map does not
    yet link. Raises `PeopleJoined` if a link would join distinct people, unless `confirm_joins`; its `errors` name the
    links only if the caller `may_know` whose data is held. Raises `InputInvalid` if a person gets too many identifiers.
    """
    tenant_id = actor(session).tenant_id
    present = _present(session, {ref for link in links for ref, _ in link})
    groups = components(links, present)
    sizes, customers = _sizes(session, {person for component in groups for person in component.people})
    joined = Counter({id(component): _num_apart(component, present, customers) - 1 for component in groups})
    _check_sizes(groups, present, sizes)
    if not confirm_joins:
        _refuse_joins([(component, joined[id(component)] + 1) for component in groups], may_know=may_know)
    forgotten = _forgotten(session, {ref for component in groups for ref in component.kinds})
    new: list[dict[str, str]] = []
    left_out: list[int] = []
    num_joined = 0
    for component in groups:
        if forgotten.keys() & component.kinds.keys():
            left_out += component.links
            continue
        num_joined += max(0, joined[id(component)])
        person, *others = sorted(component.people) or [new_id("per")]
        if others:
            session.execute(sa.update(Identity).where(Identity.person.in_(others)).values(person=person))
        new += [
            {"subject_ref": ref, "kind": kind, "person": person, "tenant_id": tenant_id}
            for ref, kind in component.kinds.items()
            if ref not in present
        ]
    bulk.store(session, Identity, new)
    _suppress_all(session, [component.kinds for component in groups], forgotten, tenant_id=tenant_id)
    audit.record(session, "identities.loaded", tenant_id, links=len(links), new=len(new), joined=num_joined)
    return Loaded(num_new=len(new), num_joined=num_joined, suppressed=sorted(left_out))


def _present(session: Session, refs: Collection[str]) -> dict[str, str]:
    """Map each given identifier that is in the identity map to its person."""
    present: dict[str, str] = {}
    for batch in bulk.in_parts(refs):
        query = sa.select(Identity.subject_ref, Identity.person).where(Identity.subject_ref.in_(batch))
        present.update((ref, person) for ref, person in session.execute(query))
    return present


def _sizes(session: Session, people: Collection[str]) -> tuple[Counter[str], Counter[str]]:
    """Return how many identifiers, and how many customer ids, each person has."""
    sizes, customers = Counter[str](), Counter[str]()
    for batch in bulk.in_parts(people):
        query = sa.select(Identity.person, Identity.kind, sa.func.count()).where(Identity.person.in_(batch))
        for person, kind, count in session.execute(query.group_by(Identity.person, Identity.kind)):
            sizes[person] += count
            customers[person] += count if kind == CUSTOMER_ID else 0
    return sizes, customers


def _num_apart(component: Component, present: Collection[str], customers: Mapping[str, int]) -> int:
    """Return the number of people that a component would join. A new identifier does not count as another person if it
    is not a customer id, or if it is the first customer id of a person in the map."""
    new_customers = sum(kind == CUSTOMER_ID and ref not in present for ref, kind in component.kinds.items())
    with_customer_id = sum(1 for person in component.people if customers.get(person))
    return max(len(component.people), with_customer_id + new_customers, 1)


def _check_sizes(groups: Iterable[Component], present: Collection[str], sizes: Mapping[str, int]) -> None:
    for component in groups:
        size = sum(sizes[person] for person in component.people) + sum(ref not in present for ref in component.kinds)
        if size > MAX_IDENTIFIERS_OF_A_PERSON:
            expected = f"expected at most {MAX_IDENTIFIERS_OF_A_PERSON} identifiers of one person"
            faults = [problems.FieldError(f"links.{component.links[0]}", expected)]
            raise problems.InputInvalid("A person cannot have so many identifiers.", faults)


def _refuse_joins(groups: Iterable[tuple[Component, int]], *, may_know: bool) -> None:
    joining = [(component, apart) for component, apart in groups if apart > 1]
    if not joining:
        return
    detail = "Nothing was loaded. Correct the links, or have an admin confirm them with confirm_joins."
    if not may_know:
        raise PeopleJoined(detail)
    faults = [
        problems.FieldError(f"links.{index}", f"is part of what would make {apart} people one")
        for component, apart in joining
        for index in component.links
    ]
    raise PeopleJoined(detail, sorted(faults, key=lambda fault: int(fault.path[6:]))[:_LISTED])


def _forgotten(session: Session, refs: Collection[str]) -> dict[str, str]:
    """Map identifiers to the request that suppressed them, for people who have been forgotten in all datasets and about
    whom no request is open."""
    forgotten: dict[str, str] = {}
    for batch in bulk.in_parts(refs):
        query = sa.select(Suppression.subject_ref, Suppression.request_id).where(
            Suppression.subject_ref.in_(batch),
            Suppression.dataset_id == search_repository.ANYWHERE,
            ~sa.exists().where(_names(Suppression.subject_ref), DeletionRequest.status.in_(status.OPEN)),
        )
        forgotten.update((ref, request_id) for ref, request_id in session.execute(query))
    return forgotten


def _names(subject_ref: sa.ColumnElement[str] | sa.orm.InstrumentedAttribute[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a request names an identifier, as its subject or as an alias."""
    linked = sa.select(RequestAlias.request_id).where(RequestAlias.subject_ref == subject_ref)
    return sa.or_(DeletionRequest.subject_ref == subject_ref, DeletionRequest.id.in_(linked))


def _suppress_all(
    session: Session, people: Iterable[Collection[str]], forgotten: Mapping[str, str], *, tenant_id: str
) -> None:
    """Suppress all identifiers of each person who has a forgotten identifier."""
    rows = []
    for refs in people:
        request_id = next((forgotten[ref] for ref in refs if ref in forgotten), None)
        if request_id is not None:
            rows += [
                {
                    "subject_ref": ref,
                    "dataset_id": search_repository.ANYWHERE,
                    "id": new_id("sup"),
                    "request_id": request_id,
                    "created_at": now(session),
                    "tenant_id": tenant_id,
                }
                for ref in refs
            ]
    bulk.store(session, Suppression, rows, unless_there=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    tenant_id: str
    kind: str | None
    refs: Sequence[str]
    dataset_ids: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolution:
    """Result of looking up a request in the map. `stored`: the request's `kind`, and its `linked` identifiers' kinds by
    pseudonym; None if the map does not affect it. `is_unknown`: True if no identifier can identify rows."""

    stored: dict[str, Any] | None
    is_unknown: bool


def resolve(session: Session, drafts: Sequence[service.RequestDraft]) -> list[service.RequestDraft]:
    """Return copies of the drafts with all linked identifiers added, marking drafts whose identity is unknown."""
    questions = [
        _Asked(
            tenant_id=draft.by.tenant_id,
            kind=draft.kind,
            refs=(draft.subject_ref, *draft.alias_refs),
            dataset_ids=draft.dataset_ids,
        )
        for draft in drafts
    ]
    resolved = []
    for draft, resolution in zip(drafts, _resolve(session, questions), strict=True):
        stored = resolution.stored
        if resolution.is_unknown:
            # Review ends when the map knows the identifier, unless the request needs review for another reason.
            stored = (stored or {}) | {"accept": draft.policy.auto_accept and draft.identity_verified}
        resolved.append(replace(draft, resolution=stored, identity_unknown=resolution.is_unknown))
    return resolved


def _resolve(session: Session, questions: Sequence[_Asked]) -> list[_Resolution]:
    person_of, members = _people(session, {ref for question in questions for ref in question.refs})
    keyed = _Keyed.read(session, questions)
    resolutions = []
    for question in questions:
        people = {person_of[ref] for ref in question.refs if ref in person_of}
        linked = {ref: kind for person in sorted(people) for ref, kind in members[person].items()}
        given = {question.kind or CUSTOMER_ID} | ({CUSTOMER_ID} if len(question.refs) > 1 else set())
        is_unknown = not keyed.of(question) & (given | set(linked.values()))
        linked = {ref: kind for ref, kind in linked.items() if ref not in question.refs}
        stored = {"kind": question.kind or CUSTOMER_ID, "linked": linked}
        is_plain = not linked and question.kind in (None, CUSTOMER_ID) and not is_unknown
        resolutions.append(_Resolution(stored=None if is_plain else stored, is_unknown=is_unknown))
    return resolutions


def _people(session: Session, refs: Collection[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Map each given identifier in the identity map to its person, and each such person to the kinds of all their
    identifiers, using one statement per batch."""
    person_of: dict[str, str] = {}
    members: dict[str, dict[str, str]] = defaultdict(dict)
    for batch in bulk.in_parts(refs) if _ANY_IDENTITY.may_hold(session) else ():
        people = sa.select(Identity.person).where(Identity.subject_ref.in_(batch))
        query = sa.select(Identity.subject_ref, Identity.kind, Identity.person).where(Identity.person.in_(people))
        for ref, kind, person in session.execute(query):
            person_of[ref] = person
            members[person][ref] = kind
    return person_of, members


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keyed:
    """Kinds of identifiers by which datasets' rows are identified, keyed by tenant and by dataset."""

    of_tenant: Mapping[str, set[str]]
    of_dataset: Mapping[str, str]

    @classmethod
    def read(cls, session: Session, questions: Sequence[_Asked]) -> "_Keyed":
        if not _ANY_KIND.may_hold(session):
            return cls(of_tenant={}, of_dataset={})
        tenant_ids = sorted({question.tenant_id for question in questions})
        kinds = sa.select(Dataset.tenant_id, Dataset.subject_kind).where(
            Dataset.tenant_id.in_(tenant_ids), Dataset.destroyed_at.is_(None)
        )
        of_tenant: dict[str, set[str]] = defaultdict(set)
        for tenant_id, kind in session.execute(kinds.distinct()):
            of_tenant[tenant_id].add(kind or CUSTOMER_ID)
        of_dataset: dict[str, str] = {}
        for batch in bulk.in_parts({id_ for question in questions for id_ in question.dataset_ids or ()}):
            named = sa.select(Dataset.id, Dataset.subject_kind).where(
                Dataset.id.in_(batch), Dataset.destroyed_at.is_(None)
            )
            of_dataset |= {id_: kind or CUSTOMER_ID for id_, kind in session.execute(named)}
        return cls(of_tenant=of_tenant, of_dataset=of_dataset)

    def of(self, question: _Asked) -> set[str]:
        """Return the kinds that identify rows of the request's datasets; `customer_id` if there are no datasets."""
        if question.dataset_ids is None:
            return self.of_tenant.get(question.tenant_id) or {CUSTOMER_ID}
        return {self.of_dataset[id_] for id_ in question.dataset_ids if id_ in self.of_dataset} or {CUSTOMER_ID}


_UNKNOWN = sa.and_(DeletionRequest.unknown_at.is_not(None), DeletionRequest.status.in_(repository.these(status.OPEN)))


def is_any_unknown(session: Session) -> bool:
    """Return True if an open request has an unknown identity."""
    return session.scalars(sa.select(DeletionRequest.id).where(_UNKNOWN).limit(1)).first() is not None


def recheck(session: Session, *, after: str, limit: int) -> str | None:
    """Try again to resolve up to `limit` open requests of unknown identity with ids greater than `after`. Requests
    whose identifiers can now be matched to rows proceed. Return the last id, or None if no further requests follow."""
    query = sa.select(DeletionRequest).where(_UNKNOWN, DeletionRequest.id > after).order_by(DeletionRequest.id)
    requests = list(session.scalars(query.limit(limit)))
    questions = [
        _Asked(
            tenant_id=request.tenant_id,
            kind=(request.resolution or {}).get("kind"),
            refs=(request.subject_ref, *(request.alias_refs or ())),
            dataset_ids=request.dataset_ids,
        )
        for request in requests
    ]
    for request, resolution in zip(requests, _resolve(session, questions), strict=True):
        if not resolution.is_unknown:
            _go_on(session, request, resolution)
    return requests[-1].id if len(requests) == limit else None


def _go_on(session: Session, request: DeletionRequest, resolution: _Resolution) -> None:
    """Resume a request whose identity has become known. It leaves review unless another reason keeps it there."""
    at = now(session)
    is_to_accept = (request.resolution or {}).get("accept", False)
    request.resolution, request.unknown_at = resolution.stored, None
    aliases = [{"request_id": request.id, "subject_ref": ref} for ref in request.subject_refs[1:]]
    bulk.store(session, RequestAlias, aliases, unless_there=True)
    policy = access.policy_of(session, request.tenant_id)
    if request.status == sets.RequestStatus.IN_REVIEW and is_to_accept and policy.auto_accept:
        new = completion.Submitted(actor=audit.SERVICE, request=request)
        lookup = repository.look_up(session, subject_refs=request.subject_refs)
        completion.accept(new, lookup, policy=policy, at=at, verb=_VERB)
        completion.store(session, [new], at=at)
        return
    kind = sets.EventKind.IN_REVIEW
    if request.status != sets.RequestStatus.IN_REVIEW:
        kind = sets.EventKind.ACCEPTED
        # `completion.settle` reads the person's rows again, because the request waited while its identity was in doubt.
        suppression.add(session, [request], at=at)
    # Receivers are not called again: they must not learn that the identity was unknown.
    change = history.Change(request=request, kind=kind, status=request.status, actor=audit.SERVICE, at=at, verb=_VERB)
    history.write(session, [change])


_OVER = (
    sa.select(Identity.person)
    .join(Suppression, Suppression.subject_ref == Identity.subject_ref)
    .where(Suppression.dataset_id == search_repository.ANYWHERE)
    .group_by(Identity.person)
)


def is_anybody_forgotten(session: Session) -> bool:
    """Return True if the map contains a person who is suppressed in all datasets and may thus already be forgotten."""
    return session.scalars(_OVER.limit(1)).first() is not None


def drop_forgotten(session: Session, *, limit: int) -> int:
    """Delete up to `limit` people from the map who have been forgotten in all datasets and have no open request; return
    their number. All their identifiers are suppressed first, because they are no longer linked afterwards."""
    others, other = sa.orm.aliased(Identity), Identity
    waits = sa.exists().where(
        others.person == other.person, _names(others.subject_ref), DeletionRequest.status.in_(status.OPEN)
    )
    people = list(session.scalars(_OVER.where(~waits).limit(limit)))
    if not people:
        return 0
    members: dict[str, list[Identity]] = defaultdict(list)
    for identity in session.scalars(sa.select(Identity).where(Identity.person.in_(people))):
        members[identity.person].append(identity)
    refs = [identity.subject_ref for identities in members.values() for identity in identities]
    forgotten = _forgotten(session, refs)
    for identities in members.values():
        mine = [identity.subject_ref for identity in identities]
        _suppress_all(session, [mine], forgotten, tenant_id=identities[0].tenant_id)
    session.execute(sa.delete(Identity).where(Identity.person.in_(people)))
    return len(people)


def forget_person(session: Session, subject_ref: str) -> int:
    """Delete all identifiers of the person with this identifier from the map, and return how many were deleted."""
    person = session.scalars(sa.select(Identity.person).where(Identity.subject_ref == subject_ref)).first()
    identities = session.scalars(sa.select(Identity).where(Identity.person == person)).all() if person else ()
    for identity in identities:
        session.delete(identity)
    audit.record(session, "identities.forgotten", actor(session).tenant_id, identifiers=len(identities))
    return len(identities)


def counts(session: Session) -> tuple[int, int, Counter[str], Counter[str]]:
    """Count the people in the identity map, the open requests with unknown identities, and the identifiers and datasets
    of each kind."""
    people = session.scalars(sa.select(sa.func.count(Identity.person.distinct())).select_from(Identity)).one()
    unknown = session.scalars(sa.select(sa.func.count()).select_from(DeletionRequest).where(_UNKNOWN)).one()
    by_kind = sa.select(Identity.kind, sa.func.count()).group_by(Identity.kind)
    identifiers = Counter({kind: count for kind, count in session.execute(by_kind)})  # noqa: C416  rows are no pairs
    return people, unknown, identifiers, Counter(datasets(session, None).values())


def datasets(session: Session, dataset_ids: Collection[str] | None) -> dict[str, str]:
    """Map dataset ids to the kind of identifier that names the dataset's people, for all datasets or the given ids."""
    query = sa.select(Dataset.id, Dataset.subject_kind).where(Dataset.destroyed_at.is_(None)).order_by(Dataset.id)
    if dataset_ids is not None:
        query = query.where(Dataset.id.in_(dataset_ids))
    return {id_: kind or CUSTOMER_ID for id_, kind in session.execute(query)}
