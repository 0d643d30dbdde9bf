"""Agents, and requests that came by a protocol: look-up by their ids, and retention."""

import base64
import datetime
import json

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.access import service as access, tenants
from app.db import Actor, now
from app.db.tables import ApiKey, DeletionRequest, Tenant
from app.deletion import retention
from app.features.protocols import drp, opendsr, service
from app.features.protocols.tables import Agent
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.sets import Scope
from lethe.contract.tenants import Policy
from lethe.features.protocols.contract import AgentExists, AgentUnknown, MessageRefused
from tests.app.deletion import people
from tests.app.deletion.test_retention import DAY, WRITTEN, found, pass_by

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
SECOND = datetime.timedelta(seconds=1)


def verify_key(key: Ed25519PrivateKey = KEY) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def message(
    installation: Installation, *, seconds_ago: int = 1, key: Ed25519PrivateKey = KEY, business_id: str = "ONE"
) -> bytes:
    """Return a set-up message signed by `key`."""
    with installation.database.reading() as session:
        issued_at = now(session) - seconds_ago * SECOND
    said = {
        "agent-id": "AGENT",
        "business-id": business_id,
        "issued-at": issued_at.isoformat(),
        "expires-at": (issued_at + 600 * SECOND).isoformat(),
        "drp.version": "1.0",
    }
    body = json.dumps(said).encode()
    return base64.b64encode(key.sign(body) + body)


@pytest.fixture
def one(installation: Installation, by: Actor) -> Actor:
    """Give the tenant the business id `ONE`, and return its actor."""
    with installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"drp_business_id": "ONE", "drp_claim": "email"})
    return by


@pytest.fixture
def two(installation: Installation, by: Actor) -> Actor:
    """Create a second tenant with the business id `TWO`, and return its actor."""
    with installation.database.writing(by=by) as session:
        policy = Policy(drp_business_id="TWO", drp_claim="email")
        made = tenants.create(session, name="two", policy=policy, admin_key=access.new_key())
    return Actor(tenant_id=made.id, name="test")


def register(installation: Installation, by: Actor, key: Ed25519PrivateKey = KEY) -> str:
    with installation.database.writing(by=by) as session:
        return service.register(session, agent_id="AGENT", name="An agent", verify_key=verify_key(key)).id


def set_up(installation: Installation, sent: bytes) -> str:
    """Handle a set-up message as the endpoint does, and return the new token."""
    with installation.database.reading() as session:
        agent = service.addressee(session, agent_id="AGENT", message=sent)
    with installation.database.writing(by=Actor(tenant_id=agent.tenant_id, name=agent.id)) as session:
        return service.set_up(session, agent.id, message=sent)


def test_a_message_reaches_the_named_business(installation: Installation, one: Actor, two: Actor) -> None:
    """A message is assigned to the agent's registration at the business named in it, and is refused if it was signed
    with another key."""
    key = Ed25519PrivateKey.generate()
    in_one, in_two = register(installation, one), register(installation, two, key)
    with installation.database.reading() as session:
        for row_id, sent in (
            (in_one, message(installation)),
            (in_two, message(installation, key=key, business_id="TWO")),
        ):
            assert service.addressee(session, agent_id="AGENT", message=sent).id == row_id
        for sent in (message(installation, key=key), message(installation, business_id="TWO"), b""):
            with pytest.raises(MessageRefused):
                service.addressee(session, agent_id="AGENT", message=sent)


def test_a_token_has_only_the_agent_scope(installation: Installation, one: Actor) -> None:
    """A new token is an API key of the agent's tenant. It has only the scope `agent` and identifies the agent."""
    row_id = register(installation, one)
    token = set_up(installation, message(installation))
    with installation.database.reading() as session:
        found = session.scalars(sa.select(ApiKey).where(ApiKey.key_hash == access.hash_of(token))).one()
        assert (found.tenant_id, found.scopes, found.name) == (one.tenant_id, [Scope.AGENT], "An agent")
        assert service.calling(session, api_key_id=found.id).id == row_id


def test_a_new_token_replaces_the_previous_one(installation: Installation, one: Actor) -> None:
    """An agent has only one valid token at a time."""
    row_id = register(installation, one)
    set_up(installation, message(installation, seconds_ago=3))
    set_up(installation, message(installation, seconds_ago=2))
    with installation.database.reading() as session:
        keys = list(session.scalars(sa.select(ApiKey).where(ApiKey.name == "An agent")))
        assert [key.id for key in keys if key.revoked_at is None] == [session.get_one(Agent, row_id).api_key_id]
        assert len(keys) == 2


def test_a_set_up_message_is_accepted_once(installation: Installation, one: Actor) -> None:
    """A set-up message is refused if it repeats the last accepted message or is older."""
    register(installation, one)
    sent, older = message(installation, seconds_ago=2), message(installation, seconds_ago=3)
    set_up(installation, sent)
    for again in (sent, older):
        with pytest.raises(MessageRefused):
            set_up(installation, again)


def test_agents_of_another_tenant_are_hidden(installation: Installation, one: Actor, two: Actor) -> None:
    """Another tenant can neither see nor remove an agent, but can register an agent with the same id."""
    row_id = register(installation, one)
    with installation.database.writing(by=two) as session:
        assert service.agents(session, limit=10, cursor=None).items == []
        with pytest.raises(AgentUnknown):
            service.remove(session, row_id)
    register(installation, two)
    with pytest.raises(AgentExists):
        register(installation, one)


def test_a_removed_agent_is_refused(installation: Installation, one: Actor) -> None:
    """Removing an agent revokes its token. The agent's signature is no longer accepted, and its id can be registered
    again."""
    row_id = register(installation, one)
    set_up(installation, message(installation))
    with installation.database.writing(by=one) as session:
        service.remove(session, row_id)
    with installation.database.reading() as session:
        assert all(key.revoked_at for key in session.scalars(sa.select(ApiKey).where(ApiKey.name == "An agent")))
    with pytest.raises(MessageRefused):
        set_up(installation, message(installation))
    register(installation, one)
    set_up(installation, message(installation))


def test_an_ordinary_api_key_is_not_an_agent_token(installation: Installation, one: Actor) -> None:
    """An API key that is not an agent's token is refused, whatever its scopes."""
    with installation.database.reading(by=one) as session:
        assert session.get(Tenant, one.tenant_id) is not None
        for key in session.scalars(sa.select(ApiKey)):
            with pytest.raises(MessageRefused):
                service.calling(session, api_key_id=key.id)


NAMED = "theirs"


@pytest.mark.parametrize("source", [opendsr.SOURCE, drp.SOURCE])
def test_a_purged_request_is_not_found(installation: Installation, by: Actor, source: str) -> None:
    """A request whose details can no longer be decrypted is not found by its external id, even while a reference to
    that id is still stored."""
    with installation.database.writing(by=by) as session:
        people.ask(session, "sub_1", Policy(), source=source, external_id=NAMED)
        people.ask(session, "sub_1", Policy(), source="file", external_id=NAMED)
    with installation.database.reading() as session:
        [found] = service.requests(session, source=source, external_id=NAMED)
        assert found.particulars.key is not None
        installation.vault.destroy([found.particulars.key])
    with installation.database.reading() as session:
        assert service.requests(session, source=source, external_id=NAMED) == []


def test_parts_of_a_subject_request_are_purged_together(installation: Installation) -> None:
    """The deletion requests that belong to one OpenDSR request are purged together once the retention period of the
    last of them has elapsed, even if each purge is limited to fewer requests. Otherwise, the part still stored would be
    mistaken for a different request with the same id."""
    policy = Policy(retain_details_days=30, report_seconds=0)
    with installation.database.writing() as session:
        people.obey(session, policy)
        first, second = [people.ask(session, who, policy, **WRITTEN, source="opendsr").request for who in ("a", "b")]
        asked = [first.id, second.id]
        apart = people.ask(session, "sub_c", policy, **WRITTEN, source="another").request.id
        session.get_one(DeletionRequest, second.id).ended_at = first.created_at + 10 * DAY
    pass_by(installation, 31 * DAY)
    assert [found(installation, one).kept for one in (*asked, apart)] == ["details", "details", "request"]
    with installation.database.writing() as session:
        people.later(session, 10 * DAY)
    with installation.database.reading() as session:
        [due] = retention.due(session, limit=1)
        assert set(due.request_ids) == set(asked)
    periodic_jobs.purge_requests(installation)
    assert [found(installation, one).kept for one in asked] == ["request", "request"]
