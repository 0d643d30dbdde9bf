"""Attested trainers as systems: their place in the register, and their lines in a request's bundle."""

from typing import Any

from sqlalchemy.orm import Session

from app.features.attested import service, tables
from app.features.systems.service import registered
from app.features.systems.systems import RegisteredSystem, RequestProof, SystemKind, iso, map_of
from lethe.features.attested.evidence import MANIFEST
from lethe.features.systems.contract import Grade

_KIND = "attested_trainer"


def _systems(session: Session) -> list[RegisteredSystem]:
    return [
        RegisteredSystem.of(row, kind=_KIND, grade=Grade.RETRAINED_ATTESTED)
        for row in registered(session, tables.AttestedTrainer)
    ]


def _lines(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    return [
        proof.line(
            {"id": trainer.id, "kind": _KIND, "name": trainer.name},
            _evidence(manifest),
            waiting=wait.status == service.OPEN,
            opened_at=iso(wait.asked_at),
            ended_at=iso(wait.ended_at),
            system_map=map_of(trainer.dataset_ids),
        )
        for wait, trainer, manifest in service.waits_of(session, request_id=proof.request.id)
    ]


def _evidence(manifest: tables.AttestedManifest | None) -> dict[str, Any]:
    if manifest is None:
        return {"type": "none"}
    return {"type": MANIFEST, "public_key": manifest.public_key, "jws": manifest.jws}


KINDS = (SystemKind(name=_KIND, systems=_systems, lines=_lines),)
