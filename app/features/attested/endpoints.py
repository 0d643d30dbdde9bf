"""Endpoints under `/attested-trainers` and `/serving`."""

from contextlib import AbstractContextManager

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once, StoredResponse
from app.api import calls, gateway
from app.audit import service as audit
from app.db import now
from app.features.attested import service, tables
from app.features.systems.service import registered, retire
from app.features.webhooks import receiver
from lethe.contract import fields, sets
from lethe.features.attested import contract

router = APIRouter()
_PLANNED = 100


@gateway.serves(router, contract.CREATE)
def create_attested_trainer(call: calls.Call, once: Once, body: contract.AttestedTrainerIn) -> JSONResponse:
    _check_url(call, body.webhook_url)

    def register(session: Session) -> StoredResponse:
        row = service.register(session, **dict(body))
        return calls.created(_trainer(session, call, row), f"/v1/attested-trainers/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST)
def list_attested_trainers(call: calls.Call, query: fields.Paging) -> fields.PageOut[contract.AttestedTrainerOut]:
    with _reading(call) as session:
        page = calls.page_of(registered(session, tables.AttestedTrainer), limit=query.limit, cursor=query.cursor)
        items = [_trainer(session, call, row) for row in page.items]
    return fields.PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_attested_trainer(call: calls.Call, attested_trainer_id: str) -> contract.AttestedTrainerOut:
    with _reading(call) as session:
        return _trainer(session, call, service.get(session, attested_trainer_id))


@gateway.serves(router, contract.CHANGE)
def change_attested_trainer(
    call: calls.Call, attested_trainer_id: str, body: contract.AttestedTrainerChangeIn
) -> contract.AttestedTrainerOut:
    changes = {name: value for name, value in dict(body).items() if value is not None}
    if body.webhook_url is not None:
        _check_url(call, body.webhook_url)
    with call.writing() as session:
        row = service.get(session, attested_trainer_id)
        service.change(session, row, **changes)
        return _trainer(session, call, row)


@gateway.serves(router, contract.RETIRE)
def retire_attested_trainer(call: calls.Call, attested_trainer_id: str) -> None:
    with call.writing() as session:
        retire(session, service.get(session, attested_trainer_id), action="attested_trainer.retired")


@gateway.serves(router, contract.IDENTIFIERS)
def digest_identifiers(
    call: calls.Call, attested_trainer_id: str, body: contract.IdentifiersIn
) -> contract.IdentifiersOut:
    refs = call.references(body.kind)(body.ids)
    # Read outside the write transaction: reading all of the tenant's suppressions would hold up writers.
    with _reading(call) as session:
        trainer, at = service.get(session, attested_trainer_id), now(session)
        forbidden = service.forbidden(session, trainer, at=at)
    with call.writing() as session:
        audit.record(session, "attested_trainer.people_compared", trainer.id, identifiers=len(refs))
    keys = call.installation.keys
    digests = [None if ref in forbidden else service.digest(keys, trainer, ref) for ref in refs]
    return contract.IdentifiersOut(read_at=at, digests=digests)


@gateway.serves(router, contract.ACCEPT)
def accept_manifest(call: calls.Call, attested_trainer_id: str, body: contract.ManifestIn) -> contract.ManifestOut:
    with call.writing() as session:
        trainer = service.get(session, attested_trainer_id, lock=True)
        keys, jws = call.installation.keys, body.jws.strip()
        return contract.ManifestOut.of(service.accept(session, keys, trainer, jws=jws, identifiers=body.identifiers))


@gateway.serves(router, contract.CLOSE)
def close_attested_wait(call: calls.Call, attested_trainer_id: str, body: contract.WaitClosureIn) -> None:
    with call.writing() as session:
        service.close(session, service.get(session, attested_trainer_id), request_id=body.request_id)


@gateway.serves(router, contract.SERVING)
def get_artefact_serving(call: calls.Call, query: contract.ArtefactServingQuery) -> contract.ArtefactServingOut:
    with _reading(call) as session:
        permission = service.serving(session, artefact_sha256=query.artefact_sha256)
    return contract.ArtefactServingOut.of(permission)


def _reading(call: calls.Call) -> AbstractContextManager[Session]:
    """Return a session that sees all of the tenant's requests. A session restricted to the calling key's own requests
    would allow artefacts that other requests forbid."""
    return call.installation.database.reading(by=call.caller.actor)


def _check_url(call: calls.Call, url: str) -> None:
    receiver.check_url(url, call.installation.settings.webhook_networks(), path="webhook_url")


def _trainer(session: Session, call: calls.Call, row: tables.AttestedTrainer) -> contract.AttestedTrainerOut:
    planned = [contract.RetrainingOut.of(retraining) for retraining in service.planned(session, row)[:_PLANNED]]
    manifest = service.latest_manifest(session, row)
    is_readable = not row.address.is_damaged
    return contract.AttestedTrainerOut.of(
        row,
        contact=row.address.contact if is_readable else None,
        webhook_url=row.address.url if is_readable and call.caller.has(sets.Scope.ADMIN) else None,
        next_retraining=planned[0] if planned else None,
        planned=planned,
        artefacts=manifest.artefacts if manifest else [],
    )


MOUNTS = (gateway.Mount(router=router),)
