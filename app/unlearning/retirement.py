"""Retirement of models and datasets: they no longer learn or forget, and their weights and rows are destroyed.

Their versions, copies, ledger, certificates and audit log remain. The audit log is signed at once, so that the
tombstone journal receives its head, and with it the retirement.

Retirement waits for open requests: a person who asked to be forgotten is owed a version without them, or their rows
null on disk, and a certificate.
"""

from sqlalchemy.orm import Session

from app.audit import checkpoints
from app.audit import service as audit
from app.audit.checkpoints import AUDIT
from app.catalogue import additions
from app.catalogue import repository as catalogue_repository
from app.catalogue import service as catalogue
from app.db import now
from app.db.tables import Dataset, Model
from app.deletion import claims
from app.deletion import repository as deletion_repository
from app.keys import Keys
from app.rows import repository as rows_repository
from app.unlearning import kinds, repository, service
from lethe.contract.problems import AdaptiveBudgetSpent, DatasetInUse, ModelInUse, ModelUnknown
from lethe.contract.sets import ModelStatus, RequestModelStatus, VersionStatus


def retire_model(session: Session, keys: Keys, model: Model) -> None:
    """Take a model out of service for good, and stop its run under way. Repeating the call is a no-op.

    Raises `ModelInUse` while requests wait for the model. If its budget permits no further version, the requests do not
    block: they are done once nothing remains of the model.
    """
    if model.retired_at is not None:
        return
    may_publish = model.error_code != AdaptiveBudgetSpent.code
    if waiting := may_publish and deletion_repository.count_owed(session, model_id=model.id):
        raise ModelInUse(
            f"{_requests(waiting)} for model {model.id} to forget; wait until they are completed "
            f"(GET /v1/deletion-requests?model_id={model.id}), or cancel them."
        )
    service.stop_runs(session, model_id=model.id)
    _retire(session, model)
    audit.record(session, "model.retired", model.id, dataset_id=model.dataset_id)
    checkpoints.checkpoint_now(session, keys, AUDIT, tenant_id=model.tenant_id)


def retire_dataset(session: Session, keys: Keys, dataset: Dataset) -> None:
    """Retire a dataset, and delete its records. Repeating the call is a no-op.

    Raises `DatasetInUse` while a model learns from it or is measured on it, or requests wait for the erasure of rows.
    """
    if dataset.retired_at is not None:
        return
    for model in catalogue_repository.users_of(session, dataset_id=dataset.id):
        raise DatasetInUse(
            f"Model {model.id} learns from dataset {dataset.id} or is measured on it; retire it first "
            f"(DELETE /v1/models/{model.id})."
        )
    if waiting := deletion_repository.count_to_erase(session, dataset_id=dataset.id):
        raise DatasetInUse(
            f"{_requests(waiting)} to have rows of dataset {dataset.id} erased; wait until they are completed "
            "(GET /v1/deletion-requests), or cancel them."
        )
    service.stop_runs(session, dataset_id=dataset.id)
    _let_go(session, dataset)
    audit.record(session, "dataset.retired", dataset.id, num_slots=dataset.num_slots)
    checkpoints.checkpoint_now(session, keys, AUDIT, tenant_id=dataset.tenant_id)


def retire_again(session: Session, retired_id: str) -> None:
    """Retire a model or dataset that a backup restored, regardless of waiting requests: the retirement serves them."""
    try:
        model = catalogue.get_model(session, retired_id)
    except ModelUnknown:
        dataset = catalogue_repository.dataset(session, retired_id)
        if dataset is not None:
            _retire_dataset_again(session, dataset)
    else:
        _retire_model_again(session, model)


def _retire_model_again(session: Session, model: Model) -> None:
    dataset = session.get_one(Dataset, model.dataset_id)
    claims.give_up_model(session, model_id=model.id, revision=dataset.revision)
    _retire(session, model)
    model.destroyed_at = model.retired_at


def _retire_dataset_again(session: Session, dataset: Dataset) -> None:
    for model in catalogue_repository.users_of(session, dataset_id=dataset.id):
        _retire_model_again(session, model)
    claims.confirm_erasures(session, dataset=dataset)
    deletion_repository.drop_unclaimed(session, dataset_id=dataset.id)
    _let_go(session, dataset)
    dataset.destroyed_at = dataset.retired_at


def _retire(session: Session, model: Model) -> None:
    live = catalogue_repository.live_version(session, model)
    if live is not None and live.status == VersionStatus.LIVE:
        live.status = VersionStatus.RETIRED
    model.status, model.live_version, model.wanted, model.audit_asked_at = ModelStatus.RETIRED, None, None, None
    model.error_code, model.not_before = None, None
    model.retired_at = now(session)
    for test in kinds.asked_kinds().values():
        test.drop_model(session, model_id=model.id)


def _let_go(session: Session, dataset: Dataset) -> None:
    additions.drop(session, dataset_id=dataset.id)
    rows_repository.drop_records(session, dataset_id=dataset.id)
    dataset.num_rows = 0
    catalogue_repository.forget_metrics(session, evaluation_dataset_id=dataset.id)
    dataset.retired_at = now(session)


def _requests(count: int) -> str:
    return "1 deletion request waits" if count == 1 else f"{count} deletion requests wait"


def pending(session: Session) -> list[repository.Retired]:
    """Return the retired models and datasets of which something may remain."""
    return repository.retired(session)


def confirm(session: Session, retired: repository.Retired) -> None:
    """Record that nothing remains of a retired model or dataset; requests then no longer wait for the model."""
    catalogue_repository.mark_destroyed(session, version_ids=retired.version_ids, at=now(session))
    repository.mark_gone(session, retired.id, at=now(session))
    model = session.get(Model, retired.id)
    if model is not None:
        revision = session.get_one(Dataset, model.dataset_id).revision
        claims.give_up_model(session, model_id=model.id, revision=revision, because=RequestModelStatus.DESTROYED)
