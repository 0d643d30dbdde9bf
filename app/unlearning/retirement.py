"""Retirement of models and datasets: training and forgetting end, and their weights and rows are destroyed.

Records of their versions and copies, their ledger, certificates and audit log remain. The audit log is signed
immediately, so that its head, and thus the retirement, reaches the tombstone journal.

Retirement waits for open requests: a person who has asked to be forgotten is entitled to a version without their data,
or to null rows on disk, and to a certificate.
"""

from sqlalchemy.orm import Session

from app.audit import checkpoints, service as audit
from app.catalogue import additions, repository as catalogue_repository
from app.db import now, tables
from app.deletion import claims, repository as deletion_repository
from app.keys import Keys
from app.rows import repository as rows_repository
from app.unlearning import kinds, repository, service
from lethe.contract import problems, sets


def retire_model(session: Session, keys: Keys, model: tables.Model) -> None:
    """Take a model out of service permanently, and stop any run in progress. Repeating the call is a no-op.

    Raises `ModelInUse` while requests are waiting for the model. If its budget permits no further version, they do not
    block retirement: they are complete once nothing remains of the model.
    """
    if model.retired_at is not None:
        return
    may_publish = model.error_code != problems.AdaptiveBudgetSpent.code
    if waiting := may_publish and deletion_repository.count_owed(session, model_id=model.id):
        raise problems.ModelInUse(requests=_requests(waiting), model_id=model.id)
    service.stop_runs(session, model_id=model.id)
    release_model(session, model)
    audit.record(session, "model.retired", model.id, dataset_id=model.dataset_id)
    checkpoints.checkpoint_now(session, keys, checkpoints.AUDIT, tenant_id=model.tenant_id)


def retire_dataset(session: Session, keys: Keys, dataset: tables.Dataset) -> None:
    """Retire a dataset, and delete its records. Repeating the call is a no-op.

    Raises `DatasetInUse` while a model uses it for training or evaluation, or requests are waiting to erase its rows.
    """
    if dataset.retired_at is not None:
        return
    for model in catalogue_repository.users_of(session, dataset_id=dataset.id):
        raise problems.DatasetInUse.by_model(model_id=model.id, dataset_id=dataset.id)
    if waiting := deletion_repository.count_to_erase(session, dataset_id=dataset.id):
        raise problems.DatasetInUse.by_requests(requests=_requests(waiting), dataset_id=dataset.id)
    service.stop_runs(session, dataset_id=dataset.id)
    release_dataset(session, dataset)
    audit.record(session, "dataset.retired", dataset.id, num_slots=dataset.num_slots)
    checkpoints.checkpoint_now(session, keys, checkpoints.AUDIT, tenant_id=dataset.tenant_id)


def release_model(session: Session, model: tables.Model) -> None:
    """Take a model out of service, regardless of waiting requests."""
    live = catalogue_repository.live_version(session, model)
    if live is not None and live.status == sets.VersionStatus.LIVE:
        live.status = sets.VersionStatus.RETIRED
    model.status, model.live_version, model.wanted, model.audit_asked_at = sets.ModelStatus.RETIRED, None, None, None
    model.error_code, model.not_before = None, None
    model.retired_at = now(session)
    for test in kinds.asked_kinds().values():
        test.drop_model(session, model_id=model.id)


def release_dataset(session: Session, dataset: tables.Dataset) -> None:
    """Take a dataset out of service, regardless of waiting requests."""
    additions.drop(session, dataset_id=dataset.id)
    rows_repository.drop_records(session, dataset_id=dataset.id)
    dataset.num_rows = 0
    catalogue_repository.forget_metrics(session, evaluation_dataset_id=dataset.id)
    dataset.retired_at = now(session)


def _requests(count: int) -> problems.Sentence:
    plural = problems.Sentence("{count} deletion requests wait", count=count)
    return problems.Sentence("1 deletion request waits") if count == 1 else plural


def pending(session: Session) -> list[repository.Retired]:
    """Return the retired models and datasets whose weights or rows may not all be destroyed yet."""
    return repository.retired(session)


def confirm(session: Session, retired: repository.Retired) -> None:
    """Record that nothing remains of a retired model or dataset, so that requests no longer wait for the model."""
    catalogue_repository.mark_destroyed(session, version_ids=retired.version_ids, at=now(session))
    repository.mark_gone(session, retired.id, at=now(session))
    model = session.get(tables.Model, retired.id)
    if model is not None:
        revision = session.get_one(tables.Dataset, model.dataset_id).revision
        claims.give_up_model(session, model_id=model.id, revision=revision, because=sets.RequestModelStatus.DESTROYED)
