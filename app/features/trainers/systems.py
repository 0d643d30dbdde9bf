"""Trainers in the register of systems, and their lines in bundles (extension socket `KINDS`)."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Erasure
from app.features.systems.systems import RegisteredSystem, RequestProof, SystemKind, iso, map_of
from app.features.trainers import service, tables
from lethe.features.systems.contract import Grade
from lethe.features.trainers.contract import TrainingStatus
from lethe.features.trainers.evidence import RETIRED, RETRAINING

KIND = "trainer"
_NOTHING = {"type": "none"}


def _systems(session: Session) -> list[RegisteredSystem]:
    query = sa.select(tables.Trainer, tables.TrainingTable).join(
        tables.TrainingTable, tables.TrainingTable.id == tables.Trainer.table_id
    )
    return [
        RegisteredSystem.of(
            trainer,
            kind=KIND,
            grade=Grade.RETRAINED_HERMETIC,
            dataset_ids=[table.dataset_id],
            map_complete_since=trainer.created_at,
        )
        for trainer, table in session.execute(
            query.order_by(tables.Trainer.created_at.desc(), tables.Trainer.id.desc())
        )
    ]


def _lines(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    """Return one bundle line for each trainer whose table held rows of the request's person."""
    request = proof.request
    mine = [id_ for id_ in (request.id, request.erased_by) if id_ is not None]
    query = (
        sa.select(tables.Trainer, Erasure)
        .join(tables.TrainingTable, tables.TrainingTable.id == tables.Trainer.table_id)
        .join(Erasure, Erasure.dataset_id == tables.TrainingTable.dataset_id)
        .where(Erasure.request_id.in_(mine))
        .order_by(tables.Trainer.id, Erasure.revision)
    )
    # If a person was erased twice, the later erasure counts.
    asked = {trainer.id: (trainer, erasure) for trainer, erasure in session.execute(query)}
    return [
        _line(session, proof, trainer, erasure)
        for trainer, erasure in asked.values()
        if (trainer.retired_at is None or trainer.retired_at > request.created_at)
        and (request.completed_at is None or trainer.created_at <= request.completed_at)
    ]


def _line(session: Session, proof: RequestProof, trainer: tables.Trainer, erasure: Erasure) -> dict[str, Any]:
    training = None if erasure.revision is None else _first_without(session, trainer, revision=erasure.revision)
    evidence: dict[str, Any] = _NOTHING
    ended_at = None
    if training is not None and erasure.nulled_at is not None:
        ended_at = iso(training.ended_at)
        evidence = {
            "type": RETRAINING,
            "training_id": training.id,
            "trainer_sha256": trainer.sha256,
            "lock_sha256": trainer.lock_sha256,
            "erased_at": iso(erasure.nulled_at),
            "started_at": iso(training.started_at),
            "published_at": ended_at,
            "repeated": training.repeated,
            "findings": training.findings,
            "artefacts": {artefact.name: artefact.sha256 for artefact in service.artefacts(session, training.id)},
        }
    elif trainer.retired_at is not None:
        evidence, ended_at = {"type": RETIRED}, iso(trainer.retired_at)
    return proof.line(
        {"id": trainer.id, "kind": KIND, "name": trainer.name},
        evidence,
        waiting=ended_at is None and proof.request.completed_at is None,
        opened_at=iso(proof.request.created_at),
        ended_at=ended_at,
        system_map=map_of([erasure.dataset_id], complete_since=trainer.created_at),
    )


def _first_without(session: Session, trainer: tables.Trainer, *, revision: int) -> tables.Training | None:
    """Return a trainer's first published training run that excludes everyone erased up to `revision`."""
    query = sa.select(tables.Training).where(
        tables.Training.trainer_id == trainer.id,
        tables.Training.status == TrainingStatus.PUBLISHED,
        tables.Training.revision >= revision,
    )
    return session.scalars(query.order_by(tables.Training.started_at, tables.Training.id).limit(1)).first()


KINDS = (SystemKind(name=KIND, systems=_systems, lines=_lines),)
