"""Kinds of systems, each with its register and its bundle lines; and the bundle of a request.

Another feature adds a kind through the `KINDS` tuple in its `systems` module, makes requests wait for it through the
`AWAITS` hook, and has its evidence verified through the `EVIDENCE` tuple in its `evidence` module in `lethe.features`.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db, signing
from app.access import service as access, subjects
from app.accounting import certificates, repository as accounting_repository, service as accounting
from app.db.tables import OWED, DeletionRequest, Erasure, Model
from app.deletion import completion, deadlines, repository as deletion_repository
from app.features.systems import service, tables
from app.keys import Keys
from app.rows import repository as rows_repository
from lethe import sockets
from lethe.contract.sets import RequestModelStatus, RequestStatus
from lethe.features.systems import bundle, contract
from lethe.proof.joint import Joint

_WITHOUT_BUNDLE = (RequestStatus.RECEIVED, RequestStatus.IN_REVIEW, RequestStatus.REJECTED, RequestStatus.CANCELLED)
_NOTHING = {"type": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProof:
    """Request with the evidence for its bundle lines. `certificates` holds the contents of its certificates and of its
    statement of absence, keyed by JWS; `signed` holds the certificates, keyed by model."""

    request: DeletionRequest
    certificates: Mapping[str, dict[str, Any]]
    signed: Mapping[str, tuple[str, str]]
    absence: str | None

    def line(self, system: Mapping[str, str], evidence: Mapping[str, Any], **details: Any) -> dict[str, Any]:
        """Return a line of the bundle (`bundle.line`)."""
        return bundle.line(system, evidence, request_id=self.request.id, certificates=self.certificates, **details)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSystem:
    """Registered system of any kind. `grade` is the strongest grade that the kind can reach."""

    id: str
    kind: str
    grade: contract.Grade
    name: str
    dataset_ids: list[str] | None
    created_at: datetime.datetime
    retired_at: datetime.datetime | None
    contact: str | None = None
    webhook_url: str | None = None
    public_key: str | None = None
    api_key_id: str | None = None
    identifier_kinds: list[str] = field(default_factory=list)
    map_complete_since: datetime.datetime | None = None
    parents: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, row: Any, *, kind: str, grade: contract.Grade, **given: Any) -> Self:
        """Return the system that a row describes. Fields not given are taken from the row's attributes of the same
        name; contact and URL come from its address unless the address is damaged."""
        address = getattr(row, "address", None)
        if address is not None and not address.is_damaged:
            given |= {"contact": address.contact, "webhook_url": address.url}
        shared = {column.name: getattr(row, column.name) for column in fields(cls) if hasattr(row, column.name)}
        return cls(**shared | given | {"kind": kind, "grade": grade})


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemKind:
    """Kind of system (extension socket `KINDS`). `systems` returns the session tenant's systems; `lines` returns
    one bundle line (see `bundle.line`) for each system that a request concerns."""

    name: str
    systems: Callable[[Session], list[RegisteredSystem]]
    lines: Callable[[Session, RequestProof], list[dict[str, Any]]]


TaskEvidence = Callable[[Session, Sequence[str]], Mapping[str, dict[str, Any]]]
"""`TASK_EVIDENCE` hook: fields that another feature adds to the evidence of acknowledged tasks, keyed by task id."""


def kinds() -> tuple[SystemKind, ...]:
    return sockets.plugs("app.features", "systems", "KINDS")


def lines_of(session: Session, keys: Keys, request: DeletionRequest) -> list[dict[str, Any]]:
    """Return the bundle lines of an accepted request. Raises `CertificateDamaged`."""
    proof = _proof_of(session, keys, request)
    return [line for kind in kinds() for line in kind.lines(session, proof)]


def statement_of(session: Session, keys: Keys, request: DeletionRequest) -> dict[str, Any]:
    """Return the statement of a request's bundle as of now. Raises `BundleNotReady`, `CertificateDamaged`."""
    if request.status in _WITHOUT_BUNDLE:
        raise contract.BundleNotReady(request_id=request.id, status=request.status)
    lines = lines_of(session, keys, request)
    certified = sorted(line["system"]["id"] for line in lines if line["evidence"]["type"] == "certificate")
    joint = accounting.joint_of(session, request_id=request.id)
    return bundle.statement(
        issued_at=iso(db.now(session)),
        request={
            "id": request.id,
            "submitted_at": iso(request.submitted_at),
            "status": request.status,
            "outcome": request.outcome,
            "completed_at": iso(request.completed_at),
        },
        lines=lines,
        joint=_stated(joint) if joint is not None and sorted(joint.models) == certified else None,
    )


def sign(keys: Keys, statement: Mapping[str, Any]) -> str:
    """Return the bundle as a compact JWS. Raises `SignatureUnverifiable`."""
    return signing.sign(keys, json.dumps(statement, separators=(",", ":")).encode(), kind=bundle.TYPE)


def _stated(joint: Joint) -> dict[str, Any]:
    return dict(json.loads(json.dumps(joint.to_json())))


def iso(time: datetime.datetime | None) -> Any:
    """Return a time in UTC, formatted for bundle lines; None if `time` is None."""
    return None if time is None else time.astimezone(datetime.UTC).isoformat()


def _proof_of(session: Session, keys: Keys, request: DeletionRequest) -> RequestProof:
    stored = accounting_repository.certificates_of(session, request_id=request.id)
    certificates.require_whole(certificates.damaged(keys, stored))
    in_doubt = completion.is_in_doubt(request, rows_repository.doubtful(session))
    rule = subjects.IN_WORDS[access.policy_of(session, request.tenant_id).subject_rule]
    absence = None if in_doubt else certificates.of(session, keys, request, identity_rule=rule)
    statements = {row.jws: certificates.statement_in(row.jws) for row in stored}
    return RequestProof(
        request=request,
        certificates=statements | ({absence.jws: absence.statement} if absence else {}),
        signed={row.model_id: (row.id, row.jws) for row in stored},
        absence=absence.jws if absence else None,
    )


def _models(session: Session) -> list[RegisteredSystem]:
    query = sa.select(Model).order_by(Model.created_at.desc(), Model.id.desc())
    return [
        RegisteredSystem.of(
            model,
            kind="model",
            grade=contract.Grade.PROVED,
            dataset_ids=[model.dataset_id],
            map_complete_since=model.created_at,
        )
        for model in session.scalars(query)
    ]


def _lines_of_models(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    """Return one bundle line for each model that the request concerns, and one for rows that no certificate covers."""
    request = proof.request
    demands = deletion_repository.request_models(session, request_id=request.id)
    models = {
        model.id: model
        for model in session.scalars(sa.select(Model).where(Model.id.in_([demand.model_id for demand in demands])))
    }
    lines = []
    for demand in demands:
        model = models[demand.model_id]
        evidence = _NOTHING
        if demand.model_id in proof.signed:
            certificate_id, jws = proof.signed[demand.model_id]
            evidence = {"type": "certificate", "certificate_id": certificate_id, "jws": jws}
        elif demand.status in (RequestModelStatus.DESTROYED, RequestModelStatus.NOTHING_PUBLISHED):
            evidence = {"type": "destroyed", "status": demand.status}
        certificate = proof.certificates.get(evidence.get("jws", ""))
        lines.append(
            proof.line(
                {"id": model.id, "kind": "model", "name": model.name},
                evidence,
                waiting=demand.status in OWED,
                opened_at=iso(demand.requested_at),
                ended_at=certificate and certificate["issued_at"],
                system_map=map_of([model.dataset_id], complete_since=model.created_at),
            )
        )
    certified = {models[model_id].dataset_id for model_id in proof.signed if model_id in models}
    rows = _line_of_rows(session, proof, certified)
    return [*lines, rows] if rows is not None else lines


def _line_of_rows(session: Session, proof: RequestProof, certified: set[str]) -> dict[str, Any] | None:
    """Return the bundle line for rows without a certificate or for a request without rows; None if neither applies."""
    request, system = proof.request, {"id": "rows", "kind": "rows", "name": "Rows in Lethe"}
    erasures = deletion_repository.by_request(session, Erasure, [request.id]).get(request.id, [])
    if erasures and all(erasure.dataset_id in certified for erasure in erasures):
        return None
    is_over = request.status == RequestStatus.COMPLETED
    is_searched = not deadlines.is_held(request, at=db.now(session)) and request.doubted_at is None
    is_erased = all(erasure.nulled_at is not None for erasure in erasures)
    waiting = not is_over and not (is_erased if erasures else is_searched)
    evidence: dict[str, Any] = _NOTHING
    if proof.absence is not None:
        evidence = {"type": "absence", "jws": proof.absence}
    elif erasures or (is_over and request.erased_by):
        listed = [
            {"dataset_id": erasure.dataset_id, "records": erasure.num_records, "erased_at": iso(erasure.nulled_at)}
            for erasure in erasures
        ]
        evidence = {"type": "erasures", "erasures": listed, "erased_by": request.erased_by}
    ended_at = None if waiting else iso(request.completed_at)
    return proof.line(system, evidence, waiting=waiting, opened_at=iso(request.created_at), ended_at=ended_at)


def _tasks(session: Session) -> list[RegisteredSystem]:
    return [of_task(row) for row in service.registered(session, tables.System)]


def of_task(row: tables.System) -> RegisteredSystem:
    """Return a system outside Lethe as a `RegisteredSystem`."""
    return RegisteredSystem.of(row, kind="task", grade=contract.Grade.ACKNOWLEDGED)


def _lines_of_tasks(session: Session, proof: RequestProof) -> list[dict[str, Any]]:
    tasks = service.tasks_of(session, request_id=proof.request.id)
    gathered: tuple[TaskEvidence, ...] = sockets.plugs("app.features", "hooks", "TASK_EVIDENCE")
    others = {
        key: evidence for gather in gathered for key, evidence in gather(session, [t.id for t, _ in tasks]).items()
    }
    return [
        proof.line(
            {"id": system.id, "kind": "task", "name": system.name},
            _evidence_of(task) | others.get(task.id, {}),
            waiting=task.status == contract.TaskStatus.OPEN,
            opened_at=iso(task.opened_at),
            ended_at=iso(task.ended_at),
            system_map=map_of(
                system.dataset_ids, identifier_kinds=system.identifier_kinds, complete_since=system.map_complete_since
            ),
        )
        for task, system in tasks
    ]


def _evidence_of(task: tables.SystemTask) -> dict[str, Any]:
    if task.status != contract.TaskStatus.ACKNOWLEDGED:
        return _NOTHING | {"task_id": task.id}
    if task.jws is not None:
        return {"type": "acknowledgement", "task_id": task.id, "public_key": task.public_key, "jws": task.jws}
    return {
        "type": "acknowledgement_by_key",
        "task_id": task.id,
        "api_key_id": task.acknowledged_with,
        "by": task.confirmed_by,
        "evidence_sha256": task.evidence_sha256,
    }


def map_of(
    dataset_ids: Sequence[str] | None,
    *,
    identifier_kinds: Sequence[str] = (),
    complete_since: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Return a bundle line's statement about whose data its system may hold; `dataset_ids` None means all datasets."""
    return {
        "dataset_ids": None if dataset_ids is None else list(dataset_ids),
        "identifier_kinds": list(identifier_kinds),
        "complete_since": iso(complete_since),
    }


KINDS = (
    SystemKind(name="model", systems=_models, lines=_lines_of_models),
    SystemKind(name="task", systems=_tasks, lines=_lines_of_tasks),
)
