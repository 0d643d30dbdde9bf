"""Copies of Lethe's own models as a kind of system, and their lines in a request's bundle."""

from typing import Any

from sqlalchemy.orm import Session

from app.features.lineage import repository, service
from app.features.systems.systems import RequestProof, SystemKind, iso
from lethe.features.lineage.evidence import COPIES, MAX_LISTED, CopiesEvidence, ListedCopy


def _lines(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    """Return one bundle line for each model with an exported version that was trained on the person's rows."""
    return [
        proof.line(
            {"id": f"{lineage.model.id}/exports", "kind": COPIES, "name": f"Copies of {lineage.model.name}"},
            _evidence(session, lineage).model_dump(mode="json"),
            opened_at=iso(proof.request.created_at),
        )
        for lineage in service.of_request(session, proof.request).models
        if lineage.num_copies_outside
    ]


def _evidence(session: Session, lineage: service.ModelLineage) -> CopiesEvidence:
    up_to = lineage.num_versions
    first = None if lineage.first_without is None else lineage.first_without.version.number
    counts, copies = repository.copies_by_state(
        session, model_id=lineage.model.id, up_to=up_to, first_without=first, limit=MAX_LISTED
    )
    listed = [ListedCopy.of(export, state=state) for state, export in copies]
    return CopiesEvidence(first_without=first, counts=counts, copies=listed)


KINDS = (SystemKind(name=COPIES, systems=lambda session: [], lines=_lines),)
