"""All SQL about agents, and about what came by a protocol."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import sealed
from app.db.paging import Page, page
from app.db.tables import Agent, DeletionRequest


def agents(session: Session, *, limit: int, cursor: str | None) -> Page[Agent]:
    return page(session, sa.select(Agent), Agent.created_at, Agent.id, limit=limit, cursor=cursor)


def agent(session: Session, row_id: str) -> Agent | None:
    return session.scalars(sa.select(Agent).where(Agent.id == row_id)).one_or_none()


def agents_called(session: Session, agent_id: str) -> list[Agent]:
    """All that have this id: one in each tenant that the agent serves."""
    return list(session.scalars(sa.select(Agent).where(Agent.agent_id == agent_id).order_by(Agent.id)))


def agent_of_key(session: Session, api_key_id: str) -> Agent | None:
    return session.scalars(sa.select(Agent).where(Agent.api_key_id == api_key_id)).one_or_none()


def requests(session: Session, *, source: str, external_id: str) -> list[DeletionRequest]:
    """The requests that came by this protocol under this id, oldest first, as long as it is kept what was written about
    all of them: keys are destroyed one by one, a moment before the references by which the requests are found."""
    named = sealed.refers_to(session, DeletionRequest.external_ref, external_id)
    query = sa.select(DeletionRequest).where(named, DeletionRequest.source == source)
    found = list(session.scalars(query.order_by(DeletionRequest.created_at, DeletionRequest.id)))
    return found if all(request.particulars.external_id == external_id for request in found) else []
