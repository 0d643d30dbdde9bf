"""Agents of the Data Rights Protocol: an admin registers them, and they obtain tokens with signed messages."""

import contextlib

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import actor, bulk, now, sealed, tables
from app.features.protocols import drp, parsing
from app.features.protocols.tables import Agent
from lethe.contract import problems, sets
from lethe.features.protocols.contract import AgentExists, AgentUnknown, MessageRefused


def agents(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[Agent]:
    return bulk.page(session, sa.select(Agent), Agent.created_at, Agent.id, limit=limit, cursor=cursor)


def agent(session: Session, row_id: str) -> Agent | None:
    return session.scalars(sa.select(Agent).where(Agent.id == row_id)).one_or_none()


def agents_called(session: Session, agent_id: str) -> list[Agent]:
    """Return all agents with this id, one per tenant that the agent serves."""
    return list(session.scalars(sa.select(Agent).where(Agent.agent_id == agent_id).order_by(Agent.id)))


def agent_of_key(session: Session, api_key_id: str) -> Agent | None:
    return session.scalars(sa.select(Agent).where(Agent.api_key_id == api_key_id)).one_or_none()


def requests(session: Session, *, source: str, external_id: str) -> list[tables.DeletionRequest]:
    """Return the requests that a protocol submitted under an external id, oldest first. Return none once any request's
    particulars are destroyed: their keys are destroyed one by one, shortly before the references to the requests."""
    named = sealed.refers_to(session, tables.DeletionRequest.external_ref, external_id)
    query = sa.select(tables.DeletionRequest).where(named, tables.DeletionRequest.source == source)
    matching = list(session.scalars(query.order_by(tables.DeletionRequest.created_at, tables.DeletionRequest.id)))
    texts = [request.particulars for request in matching if not request.particulars.is_damaged]
    return matching if all(particulars.external_id == external_id for particulars in texts) else []


def register(session: Session, *, agent_id: str, name: str, verify_key: str) -> Agent:
    """Register an agent with its Ed25519 key, `verify_key` in base64. Raises `InputInvalid`, `AgentExists`."""
    drp.check_verify_key(verify_key)
    if agents_called(session, agent_id):
        raise AgentExists(agent_id=agent_id)
    by = actor(session)
    row = Agent(
        id=tables.new_id("agt"),
        tenant_id=by.tenant_id,
        agent_id=agent_id,
        name=name,
        verify_key=verify_key,
        created_at=now(session),
    )
    session.add(row)
    audit.record(session, "agent.registered", row.id)
    return row


def remove(session: Session, row_id: str) -> None:
    """Remove an agent and revoke its token; its requests remain. Raises `AgentUnknown`."""
    row = AgentUnknown.if_none(agent(session, row_id), row_id=row_id)
    _revoke_token(session, row)
    session.delete(row)
    audit.record(session, "agent.removed", row_id)


def addressee(session: Session, *, agent_id: str, message: bytes) -> Agent:
    """Return the agent that signed `message`, as registered with the tenant whose business the message addresses. The
    session must see all tenants. The caller is not authenticated yet, and an agent may be registered with several
    tenants, with the same or different keys. Raises `MessageRefused` for any fault in the message."""
    at = now(session)
    for row in agents_called(session, agent_id):
        with contextlib.suppress(problems.Problem):
            envelope = parsing.parsed(drp.Envelope, drp.open_message(message, verify_key=row.verify_key))
            business_id = access.policy_of(session, row.tenant_id).drp_business_id
            drp.check(envelope, agent_id=agent_id, business_id=business_id, at=at)
            return row
    raise _refused()


def set_up(session: Session, row_id: str, *, message: bytes) -> str:
    """Return a new token for the agent that signed `message`, and revoke the previous token. Raises `MessageRefused`
    unless the message was signed later than every message that has obtained a token so far."""
    row = agent(session, row_id)
    if row is None:
        raise _refused()
    issued_at = parsing.parsed(drp.Envelope, drp.open_message(message, verify_key=row.verify_key)).issued_at
    if row.set_up_at is not None and issued_at <= row.set_up_at:
        raise _refused()
    _revoke_token(session, row)
    token = access.new_key()
    key = access.add_key(session, name=row.name, key=token, scopes=[sets.Scope.AGENT])
    # The agent has a foreign key to the API key.
    session.flush()
    row.api_key_id, row.set_up_at = key.id, issued_at
    audit.record(session, "agent.set_up", row.id, api_key_id=key.id)
    return token


def calling(session: Session, *, api_key_id: str) -> Agent:
    """Return the agent whose token authenticated the call. Raises `MessageRefused`."""
    row = agent_of_key(session, api_key_id)
    if row is None:
        raise MessageRefused("This key is not the token of an agent; POST /drp/v1/agent/{agent-id} gives one.")
    return row


def _revoke_token(session: Session, row: Agent) -> None:
    if row.api_key_id is not None:
        # An admin may have revoked the key.
        with contextlib.suppress(problems.KeyUnknown):
            access.revoke_key(session, row.api_key_id, by=None)
        row.api_key_id = None


def _refused() -> MessageRefused:
    return MessageRefused("The message is not one that this agent signed for this business now.")
