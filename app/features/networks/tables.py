"""Public networks and their files."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class Network(Owned, Table):
    """Public network, identified by its `sha256`: an ONNX file not trained on data about the people concerned.

    `provenance` states its training data, and `dp_ledger` the location of its own differential-privacy ledger. Each
    entry of `parameters` has a `name` and a `shape`.
    """

    __tablename__ = "networks"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    sha256: Mapped[str]
    size: Mapped[int] = mapped_column(sa.BigInteger)
    licence: Mapped[str]
    provenance: Mapped[str]
    dp_ledger: Mapped[str | None]
    opset: Mapped[int]
    input_shape: Mapped[list[int]] = mapped_column(sa.JSON)
    output_size: Mapped[int]
    num_parameters: Mapped[int] = mapped_column(sa.BigInteger)
    parameters: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON)
    operators: Mapped[list[str]] = mapped_column(sa.JSON)
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"), sa.UniqueConstraint("tenant_id", "sha256"))


class NetworkPiece(Table):
    """Piece of a network's file; `place` numbers the pieces from 0."""

    __tablename__ = "network_pieces"
    network_id: Mapped[str] = mapped_column(sa.ForeignKey("networks.id"), primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content: Mapped[bytes]


STORED = (("networks", sa.select(sa.func.sum(Network.size))),)
"""Bytes of networks."""
