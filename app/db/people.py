"""The requests about somebody: by the identifier that they are made for, or by an alias."""

from collections.abc import Collection

import sqlalchemy as sa

from app.db.tables import DeletionRequest, RequestAlias


def is_about(subject_refs: Collection[str]) -> sa.ColumnElement[bool]:
    """A condition: the request is about one of these, by any identifier."""
    named = sa.select(DeletionRequest.id).where(DeletionRequest.subject_ref.in_(subject_refs))
    also = sa.select(RequestAlias.request_id).where(RequestAlias.subject_ref.in_(subject_refs))
    return DeletionRequest.id.in_(sa.union_all(named, also))
