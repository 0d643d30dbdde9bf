"""SQL queries about public networks."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk, tables
from app.features.networks.tables import Network, NetworkPiece

_PIECE_BYTES = 2**20


def network(session: Session, network_id: str) -> Network | None:
    return session.get(Network, network_id)


def by_sha256(session: Session, sha256: str) -> Network | None:
    return session.scalars(sa.select(Network).where(Network.sha256 == sha256)).one_or_none()


def any_with(session: Session, sha256: str) -> Network | None:
    """Return any network whose file has this SHA-256; the session must see the networks of all tenants."""
    return session.scalars(sa.select(Network).where(Network.sha256 == sha256).order_by(Network.id).limit(1)).first()


def networks(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[Network]:
    return bulk.page(session, sa.select(Network), Network.created_at, Network.id, limit=limit, cursor=cursor)


def add(session: Session, row: Network, content: bytes) -> None:
    session.add(row)
    # The pieces refer to the row.
    session.flush()
    for place, start in enumerate(range(0, len(content), _PIECE_BYTES)):
        piece = {"network_id": row.id, "place": place, "content": content[start : start + _PIECE_BYTES]}
        session.execute(sa.insert(NetworkPiece), piece)


def content_of(session: Session, network_id: str) -> bytes:
    query = sa.select(NetworkPiece.content).where(NetworkPiece.network_id == network_id)
    return b"".join(session.scalars(query.order_by(NetworkPiece.place)))


def drop(session: Session, row: Network) -> None:
    session.execute(sa.delete(NetworkPiece).where(NetworkPiece.network_id == row.id))
    session.delete(row)


def first_dataset_on(session: Session, network_id: str) -> str | None:
    """Return the ID of an active dataset whose rows this network encoded, or None if there is none."""
    query = sa.select(tables.Dataset.id).where(
        tables.Dataset.network_id == network_id, tables.Dataset.retired_at.is_(None)
    )
    return session.scalars(query.order_by(tables.Dataset.id).limit(1)).first()


def mechanisms_in_service(session: Session) -> list[tuple[str, dict[str, object]]]:
    """Return the ID and the stored mechanism of each model that is not retired."""
    query = (
        sa.select(tables.Model.id, tables.Model.mechanism)
        .where(tables.Model.retired_at.is_(None))
        .order_by(tables.Model.id)
    )
    return [(model_id, mechanism) for model_id, mechanism in session.execute(query)]
