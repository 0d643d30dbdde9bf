"""SQL queries about agents, and about requests received by a protocol."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import sealed
from app.db.bulk import Page, page
from app.db.tables import DeletionRequest
from app.features.protocols.tables import Agent


def agents(session: Session, *, limit: int, cursor: str | None) -> Page[Agent]:
    return page(session, sa.select(Agent), Agent.created_at, Agent.id, limit=limit, cursor=cursor)


def agent(session: Session, row_id: str) -> Agent | None:
    return session.scalars(sa.select(Agent).where(Agent.id == row_id)).one_or_none()


def agents_called(session: Session, agent_id: str) -> list[Agent]:
    """Return all agents with this id, one per tenant that the agent serves."""
    return list(session.scalars(sa.select(Agent).where(Agent.agent_id == agent_id).order_by(Agent.id)))


def agent_of_key(session: Session, api_key_id: str) -> Agent | None:
    return session.scalars(sa.select(Agent).where(Agent.api_key_id == api_key_id)).one_or_none()


def requests(session: Session, *, source: str, external_id: str) -> list[DeletionRequest]:
    """Return the requests received by a protocol under an id, oldest first; empty once the particulars of any are
    destroyed, because keys are destroyed one by one, shortly before the references by which requests are found."""
    named = sealed.refers_to(session, DeletionRequest.external_ref, external_id)
    query = sa.select(DeletionRequest).where(named, DeletionRequest.source == source)
    matching = list(session.scalars(query.order_by(DeletionRequest.created_at, DeletionRequest.id)))
    texts = [request.particulars for request in matching if not request.particulars.is_damaged]
    return matching if all(particulars.external_id == external_id for particulars in texts) else []
