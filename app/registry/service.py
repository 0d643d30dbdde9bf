"""Models and their versions: create, relearn, publish, retire, destroy."""

from typing import Any

from sqlalchemy.orm import Session

from app import telemetry
from app.db import now
from app.db.tables import Dataset, Model, Run, Version, new_id
from app.errors import (
    ModelNotLive,
    ModelUnknown,
    PreconditionFailed,
    TargetUnreachable,
    VersionUnknown,
    WeightsDestroyed,
)
from app.privacy import accountant, calibration
from app.privacy.accountant import Run as ChainRun
from app.privacy.errors import InfeasibleError, PrivacyError
from app.privacy.mechanism import Mechanism, num_weight_rows
from app.registry import repository
from app.registry.weights import WeightStore


def create_model(
    session: Session,
    *,
    name: str,
    dataset: Dataset,
    evaluation_dataset: Dataset | None,
    epsilon: float,
    delta: float | None,
    l2: float | None,
    noise_scale: float | None,
    step_size: float | None,
    radius: float | None,
    learn_steps: int | None,
    ranks: int,
    max_requests: int | None,
    max_wait_seconds: int,
    max_steps: int,
) -> Model:
    """Freeze the mechanism and ask for the first learning run.

    `delta` defaults to 1 / num_slots^1.1. Raises `PreconditionFailed` when the mechanism has no guarantee,
    `TargetUnreachable` when a single deletion could not be brought to (epsilon, delta) within `max_steps`.
    """
    if evaluation_dataset and evaluation_dataset.digest == dataset.digest:
        raise PreconditionFailed("Measure on another dataset: accuracy on the learned rows would tell about them.")
    if evaluation_dataset and not _same_shape(dataset, evaluation_dataset):
        raise PreconditionFailed("The evaluation dataset must have the same features and classes as the dataset.")
    delta = dataset.num_slots**-1.1 if delta is None else delta
    try:
        mechanism = calibration.mechanism_for(
            num_slots=dataset.num_slots,
            num_classes=len(dataset.classes),
            num_parameters=num_weight_rows(len(dataset.classes)) * (dataset.num_features + 1),  # the bias
            epsilon=epsilon,
            delta=delta,
            l2=l2,
            noise_scale=noise_scale,
            step_size=step_size,
            radius=radius,
            learn_steps=learn_steps,
        )
        if mechanism.learn_steps > max_steps:
            raise InfeasibleError(f"Expected learn_steps={mechanism.learn_steps} <= {max_steps}: raise l2")
        learned = accountant.replay(mechanism, [ChainRun(steps=mechanism.learn_steps)])
        calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=max_steps)
    except InfeasibleError as error:
        raise TargetUnreachable(f"{error}. Raise l2, noise_scale or the target.") from error
    except PrivacyError as error:
        raise PreconditionFailed(str(error)) from error
    except ArithmeticError as error:
        raise PreconditionFailed("A setting is too large or too small to compute with.") from error
    model = Model(
        id=new_id("mdl"),
        name=name,
        dataset_id=dataset.id,
        evaluation_dataset_id=evaluation_dataset and evaluation_dataset.id,
        mechanism=mechanism.to_json(),
        epsilon=epsilon,
        delta=delta,
        ranks=ranks,
        max_requests=max_requests,
        max_wait_seconds=max_wait_seconds,
        status="learning",
        wanted="learn",
        created_at=now(session),
    )
    session.add(model)
    return model


def get_model(session: Session, model_id: str) -> Model:
    """Raises `ModelUnknown`."""
    model = repository.model(session, model_id)
    if model is None:
        raise ModelUnknown(f"There is no model {model_id!r}; GET /v1/models lists them.")
    return model


def get_version(session: Session, *, model_id: str, number: int) -> Version:
    """Raises `ModelUnknown`, `VersionUnknown`."""
    get_model(session, model_id)
    version = repository.version(session, model_id=model_id, number=number)
    if version is None:
        raise VersionUnknown(f"Model {model_id} has no version {number}.")
    return version


def get_live_version(session: Session, model: Model) -> Version:
    """Raises `ModelNotLive`."""
    version = repository.live_version(session, model)
    if version is None:
        raise ModelNotLive(f"Model {model.id} is {model.status}; wait until its first version is published.")
    return version


def relearn(session: Session, model: Model) -> None:
    """Ask for a run from scratch on the present data."""
    if model.wanted is None:
        model.wanted = "relearn" if model.live_version else "learn"
        model.status = "live" if model.live_version else "learning"
        model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None


def mechanism_of(model: Model) -> Mechanism:
    return Mechanism.from_json(model.mechanism)


def publish_version(
    session: Session, *, run: Run, model: Model, weights_sha256: str, metrics: dict[str, Any]
) -> Version:
    """Put the run's version in service and retire the one before it, in the caller's transaction."""
    previous = repository.live_version(session, model)
    if previous:
        previous.status = "retired"
    version = Version(
        id=run.version_id,
        model_id=model.id,
        number=(model.live_version or 0) + 1,
        status="live",
        run_id=run.id,
        revision=run.revision,
        weights_sha256=weights_sha256,
        metrics=metrics,
        published_at=now(session),
    )
    session.add(version)
    model.live_version, model.status = version.number, "live"
    model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    if run.kind != "unlearn":
        model.wanted = None
    return version


def read_weights(store: WeightStore, version: Version) -> bytes:
    """The safetensors bytes of the version in service. Raises `WeightsDestroyed` for any other."""
    if version.status != "live":
        raise WeightsDestroyed(
            f"Version {version.number} was superseded; its weights are gone, and with them whoever was forgotten since."
        )
    return store.get(version.id)


def destroy_retired(session: Session, store: WeightStore) -> int:
    """Destroy the weights of every retired version; returns how many. Safe to run again after a crash."""
    retired = repository.retired_version_ids(session)
    for version_id in retired:
        if _destroy(store, version_id):
            repository.mark_destroyed(session, version_id=version_id, at=now(session))
    return len(retired)


def destroy_orphans(session: Session, store: WeightStore) -> None:
    """Destroy weights that dead runs left: stored, but neither in service nor about to be."""
    try:
        stored = store.version_ids()
    except OSError as error:
        telemetry.logger().error("registry.weights_not_listed", error=type(error).__name__)
        return
    for version_id in stored - repository.needed_version_ids(session):
        _destroy(store, version_id)


def _destroy(store: WeightStore, version_id: str) -> bool:
    """Whether the weights are gone; if the disk refuses, they are tried again the next time."""
    try:
        store.destroy(version_id)
    except OSError as error:
        telemetry.logger().error("registry.weights_not_destroyed", version_id=version_id, error=type(error).__name__)
        return False
    return True


def _same_shape(one: Dataset, other: Dataset) -> bool:
    return one.schema == other.schema and one.num_features == other.num_features and one.classes == other.classes
