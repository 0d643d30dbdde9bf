"""Agents of the Data Rights Protocol: registered by an admin, and given a token for their signature."""

import contextlib

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import actor, now
from app.db.tables import Agent, new_id
from app.protocols import drp, repository
from app.protocols.drp import Envelope
from app.protocols.parsing import parsed
from lethe.contract.problems import AgentExists, AgentUnknown, KeyUnknown, MessageRefused, Problem
from lethe.contract.sets import Scope


def register(session: Session, *, agent_id: str, name: str, verify_key: str) -> Agent:
    """Let an agent sign requests with the key of `verify_key` (base64). Raises `InputInvalid`, `AgentExists`."""
    drp.check_verify_key(verify_key)
    if repository.agents_called(session, agent_id):
        raise AgentExists(f"There is an agent {agent_id!r}; remove it first to change its key.")
    by = actor(session)
    row = Agent(
        id=new_id("agt"),
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
    """Its token opens nothing any more; its requests stay. Raises `AgentUnknown`."""
    row = repository.agent(session, row_id)
    if row is None:
        raise AgentUnknown(f"There is no agent {row_id!r}; GET /v1/agents lists them.")
    _revoke_token(session, row)
    session.delete(row)
    audit.record(session, "agent.removed", row_id)


def addressee(session: Session, *, agent_id: str, message: bytes) -> Agent:
    """Find the agent that signed `message`, in the tenant whose business it is for, in a session that sees all tenants.

    Nobody is authenticated yet: an agent may be registered with several tenants, under one key or many. Raises
    `MessageRefused`, whatever is wrong with the message.
    """
    at = now(session)
    for row in repository.agents_called(session, agent_id):
        with contextlib.suppress(Problem):
            envelope = parsed(Envelope, drp.opened(message, verify_key=row.verify_key))
            business_id = access.policy_of(session, row.tenant_id).drp_business_id
            drp.check(envelope, agent_id=agent_id, business_id=business_id, at=at)
            return row
    raise _refused()


def set_up(session: Session, row_id: str, *, message: bytes) -> str:
    """A new token for the agent, who signed `message`; the one before opens nothing any more.

    Raises `MessageRefused` if it was answered before, or one that was signed later.
    """
    row = repository.agent(session, row_id)
    if row is None:
        raise _refused()
    issued_at = parsed(Envelope, drp.opened(message, verify_key=row.verify_key)).issued_at
    if row.set_up_at is not None and issued_at <= row.set_up_at:
        raise _refused()
    _revoke_token(session, row)
    token = access.new_key()
    key = access.add_key(session, name=row.name, key=token, scopes=[Scope.AGENT])
    session.flush()  # the agent's row refers to it
    row.api_key_id, row.set_up_at = key.id, issued_at
    audit.record(session, "agent.set_up", row.id, api_key_id=key.id)
    return token


def calling(session: Session, *, api_key_id: str) -> Agent:
    """The agent whose token a call came with. Raises `MessageRefused`."""
    row = repository.agent_of_key(session, api_key_id)
    if row is None:
        raise MessageRefused("This key is not the token of an agent; POST /drp/v1/agent/{agent-id} gives one.")
    return row


def _revoke_token(session: Session, row: Agent) -> None:
    if row.api_key_id is not None:
        with contextlib.suppress(KeyUnknown):  # an admin has revoked it
            access.revoke_key(session, row.api_key_id, by=None)
        row.api_key_id = None


def _refused() -> MessageRefused:
    return MessageRefused("The message is not one that this agent signed for this business now.")
