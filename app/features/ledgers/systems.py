"""Models with ledgers as a kind of system, and their lines in a request's bundle."""

from typing import Any

from sqlalchemy.orm import Session

from app.features.ledgers import service, tables
from app.features.systems.service import registered
from app.features.systems.systems import RegisteredSystem, RequestProof, SystemKind, iso, map_of
from lethe.features.ledgers import accountant, contract, evidence
from lethe.features.systems.contract import Grade

_KIND = "dp_model"


def _systems(session: Session) -> list[RegisteredSystem]:
    return [
        RegisteredSystem.of(model, kind=_KIND, grade=Grade.DECLARED) for model in registered(session, tables.DpModel)
    ]


def _lines(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    return [
        proof.line(
            {"id": model.id, "kind": _KIND, "name": model.name},
            _evidence(entry, ledger),
            waiting=entry.status == contract.DpRequestStatus.WAITING,
            opened_at=iso(entry.opened_at),
            ended_at=iso(entry.ended_at),
            system_map=map_of(model.dataset_ids),
        )
        for entry, model, ledger in service.entries_of(session, request_id=proof.request.id)
    ]


def _evidence(entry: tables.DpRequest, ledger: tables.DpLedger | None) -> dict[str, Any]:
    if ledger is None:
        return {"type": evidence.SPENT, "status": entry.status}
    steps = accountant.read(ledger.ledger)
    known = dict(ledger.curve)
    if entry.forgotten_rows not in known:
        known[entry.forgotten_rows] = accountant.epsilon(steps, rows=entry.forgotten_rows, delta=ledger.delta)
    return {
        "type": evidence.BOUNDED,
        "ledger_id": ledger.id,
        "version": ledger.version,
        "ledger": ledger.ledger,
        "relation": ledger.relation,
        "delta": ledger.delta,
        "max_rows_per_person": ledger.max_rows_per_person,
        "trained_from": iso(ledger.trained_from),
        "budget_epsilon": ledger.budget_epsilon,
        "forgotten_rows": entry.forgotten_rows,
        "epsilon_of_person": ledger.epsilon,
        "epsilon_of_forgotten": known[entry.forgotten_rows],
    }


KINDS = (SystemKind(name=_KIND, systems=_systems, lines=_lines),)
