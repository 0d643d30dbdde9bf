"""Resolution of requests by an identity map."""

import pytest
import sqlalchemy as sa

from app.db import Actor
from app.features.identities import service
from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.app.deletion.people import asked
from tests.counted import statements_to


@pytest.mark.parametrize("person", ["sub_1", "sub_stranger"])
@pytest.mark.parametrize("number", [1, 50])
def test_a_lookup_takes_two_statements(installation: Installation, by: Actor, person: str, number: int) -> None:
    """Resolving one or fifty requests takes two SQL statements, no matter whether the person has many identifiers or is
    unknown."""
    links = [[("sub_1", "customer_id"), *((f"sub_e{n}", "email") for n in range(30))]]
    with installation.database.writing(by=by) as session:
        service.load(session, links, confirm_joins=False, may_know=True)
    with installation.database.reading() as session:
        drafts = [asked(person, Policy(), kind="email") for _ in range(number)]
        session.execute(sa.select(1))
        with statements_to(installation.database.engine) as statements:
            resolved = service.resolve(session, drafts)
    assert len(statements) == 2
    assert {draft.identity_unknown for draft in resolved} == {person == "sub_stranger"}
    assert {len(draft.subject_refs) for draft in resolved} == {31 if person == "sub_1" else 1}
