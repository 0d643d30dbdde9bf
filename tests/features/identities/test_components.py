"""The components of an identity map, compared with a reference that walks the graph."""

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import pytest
import sqlalchemy as sa
from hypothesis import given, strategies as st

from app.access import tenants
from app.db import Actor
from app.features.identities import service
from app.features.identities.service import Link
from app.features.identities.tables import Identity
from app.installations import Installation
from lethe.contract.tenants import Policy
from lethe.features.identities.contract import PeopleJoined

LINKS = st.lists(
    st.lists(st.integers(0, 15).map(lambda n: (f"sub_{n}", "device")), min_size=2, max_size=4, unique=True),
    min_size=1,
    max_size=12,
)


def walked(links: Iterable[Link]) -> set[frozenset[str]]:
    """Return the connected components of the links, found by a walk from every identifier."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in links:
        for ref, _ in link:
            neighbours[ref].update(other for other, _ in link)
    return {_from(start, neighbours) for start in neighbours}


def _from(start: str, neighbours: dict[str, set[str]]) -> frozenset[str]:
    seen, waiting = {start}, deque([start])
    while waiting:
        for other in neighbours[waiting.popleft()] - seen:
            seen.add(other)
            waiting.append(other)
    return frozenset(seen)


@given(LINKS)
def test_components_match_a_graph_walk(links: list[Link]) -> None:
    """A walk through the graph finds the same components, and each link belongs to exactly one of them."""
    components = service.components(links, {})
    assert {frozenset(component.kinds) for component in components} == walked(links)
    assert sorted(index for component in components for index in component.links) == list(range(len(links)))


@given(LINKS, LINKS)
def test_a_map_joins_people_like_its_links(before: list[Link], links: list[Link]) -> None:
    """Adding links to an existing map joins the same people as loading the earlier and the new links together."""
    people = {ref: f"per_{n}" for n, component in enumerate(walked(before)) for ref in component}
    members: dict[str, set[str]] = defaultdict(set)
    for ref, person in people.items():
        members[person].add(ref)
    touched = {
        frozenset(component.kinds) | {ref for person in component.people for ref in members[person]}
        for component in service.components(links, people)
    }
    named = {ref for link in links for ref, _ in link}
    assert touched == {component for component in walked([*before, *links]) if component & named}


def stored(installation: Installation) -> set[frozenset[str]]:
    """Return the identifiers of each person in the stored map."""
    people: dict[str, set[str]] = defaultdict(set)
    with installation.database.reading() as session:
        for ref, person in session.execute(sa.select(Identity.subject_ref, Identity.person)):
            people[person].add(ref)
    return {frozenset(refs) for refs in people.values()}


def load(installation: Installation, by: Actor, links: Sequence[Link], *, confirm: bool = True) -> service.Loaded:
    with installation.database.writing(by=by) as session:
        return service.load(session, links, confirm_joins=confirm, may_know=True)


@pytest.mark.parametrize("seed", range(3))
def test_order_and_batching_of_loads_do_not_matter(installation: Installation, by: Actor, seed: int) -> None:
    """Loading links one at a time, in any order and twice, creates the same map as loading all of them together."""
    chance = random.Random(seed)
    links = [[(f"sub_{chance.randrange(40)}", "device") for _ in range(2)] for _ in range(30)]
    expected = walked(links)
    for link in chance.sample(links, len(links)):
        load(installation, by, [link])
    assert stored(installation) == expected
    again = load(installation, by, links)
    assert (again.num_new, again.num_joined) == (0, 0)
    assert stored(installation) == expected


def _load_and_die(installation: Installation, by: Actor, links: Sequence[Link]) -> None:
    with installation.database.writing(by=by) as session:
        service.load(session, links, confirm_joins=False, may_know=True)
        session.flush()
        raise KeyboardInterrupt


def test_a_load_that_is_killed_leaves_nothing(installation: Installation, by: Actor) -> None:
    """Loading links is one transaction: if it is interrupted before the commit, the identity map is unchanged, and the
    links can be loaded again."""
    load(installation, by, [[("sub_1", "customer_id"), ("sub_2", "email")]])
    before = stored(installation)
    links = [[("sub_3", "customer_id"), ("sub_4", "email")], [("sub_1", "customer_id"), ("sub_5", "phone")]]
    with pytest.raises(KeyboardInterrupt):
        _load_and_die(installation, by, links)
    assert stored(installation) == before
    assert load(installation, by, links).num_new == 3


@pytest.mark.parametrize(
    ("loads", "is_refused"),
    [
        ([[("c1", "e1")], [("c2", "e1")]], True),
        ([[("c1", "e1"), ("c2", "e1")]], True),
        ([[("e1", "e2")], [("c1", "e1")], [("c1", "p1")]], False),
        ([[("c1", "e1")], [("c2", "e2")], [("e1", "e2")]], True),
        ([[("e1", "e2")], [("c1", "e1")], [("c2", "e2")]], True),
        ([[("e1", "p1")], [("e2", "p2")], [("p1", "p2")]], True),
        ([[("c1", "e1")], [("c1", "e2"), ("e1", "p1")]], False),
    ],
)
def test_an_unconfirmed_join_is_refused_in_any_order(
    installation: Installation, by: Actor, loads: list[list[tuple[str, str]]], is_refused: bool
) -> None:
    """Two customer numbers, or two people in the identity map, stay separate until their join is confirmed, in whatever
    order the links arrive."""
    kinds = {"c": "customer_id", "e": "email", "p": "phone"}
    batches = [[[(f"sub_{name}", kinds[name[0]]) for name in link] for link in links] for links in loads]
    for batch in batches[:-1]:
        load(installation, by, batch, confirm=False)
    if is_refused:
        before = stored(installation)
        with pytest.raises(PeopleJoined):
            load(installation, by, batches[-1], confirm=False)
        assert stored(installation) == before
    load(installation, by, batches[-1], confirm=is_refused)


@pytest.fixture
def other(installation: Installation, by: Actor) -> Actor:
    """Create another tenant, and return an actor for it."""
    with installation.database.writing(by=by) as session:
        tenant = tenants.create(session, name="other", policy=Policy(), admin_key="other")
    return Actor(tenant_id=tenant.id, name="other")


def test_maps_of_tenants_are_separate(installation: Installation, by: Actor, other: Actor) -> None:
    """Loading a tenant's links never matches a person of another tenant."""
    load(installation, by, [[("sub_1", "customer_id"), ("sub_2", "email")]])
    load(installation, other, [[("sub_3", "customer_id"), ("sub_4", "email")]])
    for actor in (by, other):
        with installation.database.reading(by=actor) as session:
            people, _, identifiers, _ = service.counts(session)
        assert (people, identifiers["email"]) == (1, 1)
