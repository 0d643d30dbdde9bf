"""Weights that are handed out: a copy outside is out of reach, so who got which is kept for ever."""

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import quality
from app.catalogue import service as catalogue
from app.db import actor, now
from app.db.tables import Export, new_id
from lethe.contract.problems import WeightsDestroyed
from lethe.contract.sets import VersionStatus


def note(session: Session, *, model_id: str, number: int) -> Export:
    """Note that the session's actor gets the weights of a version, before it does.

    Raises `ModelUnknown`, `VersionUnknown`; `WeightsDestroyed` for a version that is no longer in service; `ModelHeld`.
    """
    version = catalogue.get_version(session, model_id=model_id, number=number)
    if version.status != VersionStatus.LIVE:
        raise WeightsDestroyed(f"Version {number} was superseded while it was read; its weights are not handed out.")
    quality.require_served(version)
    by = actor(session)
    export = Export(
        id=new_id("exp"),
        tenant_id=by.tenant_id,
        model_id=model_id,
        version=number,
        api_key_id=by.name,
        at=now(session),
    )
    session.add(export)
    audit.record(session, "model.weights_exported", model_id, version=number, export_id=export.id)
    return export
