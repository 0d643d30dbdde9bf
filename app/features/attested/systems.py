"""Trainers as systems: their place in the register, and their lines in the bundle of a request."""

import datetime
from typing import Any

from sqlalchemy.orm import Session

from app.features.attested import service
from app.features.attested.tables import AttestedManifest
from app.features.systems.systems import RegisteredSystem, RequestProof, SystemKind
from lethe.features.attested.evidence import MANIFEST
from lethe.features.systems.contract import Grade

_KIND = "attested_trainer"


def _systems(session: Session) -> list[RegisteredSystem]:
    return [
        RegisteredSystem(
            id=row.id,
            kind=_KIND,
            grade=Grade.RETRAINED_ATTESTED,
            name=row.name,
            contact=None if row.address.is_damaged else row.address.contact,
            webhook_url=None if row.address.is_damaged else row.address.url,
            public_key=row.public_key,
            api_key_id=None,
            dataset_ids=row.dataset_ids,
            identifier_kinds=[],
            map_complete_since=None,
            parents=[],
            created_at=row.created_at,
            retired_at=row.retired_at,
        )
        for row in service.registered(session)
    ]


def _lines(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    return [
        proof.line(
            {"id": trainer.id, "kind": _KIND, "name": trainer.name},
            _evidence(manifest),
            waiting=wait.status == service.OPEN,
            opened_at=_iso(wait.asked_at),
            ended_at=_iso(wait.ended_at),
            system_map={"dataset_ids": trainer.dataset_ids, "identifier_kinds": [], "complete_since": None},
        )
        for wait, trainer, manifest in service.waits_of(session, request_id=proof.request.id)
    ]


def _evidence(manifest: AttestedManifest | None) -> dict[str, Any]:
    if manifest is None:
        return {"type": "none"}
    return {"type": MANIFEST, "public_key": manifest.public_key, "jws": manifest.jws}


def _iso(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.astimezone(datetime.UTC).isoformat()


KINDS = (SystemKind(name=_KIND, systems=_systems, lines=_lines),)
