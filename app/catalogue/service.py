"""Models and their versions: create, relearn, publish, retire, destroy."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from app import telemetry
from app.audit import service as audit
from app.catalogue import datasets, mechanisms, quality, repository
from app.db import actor, now
from app.db.mechanisms import stored_mechanism
from app.db.tables import Dataset, Model, Run, Version, new_id
from app.vault.weights import WeightStore
from lethe.contract.problems import (
    FieldError,
    ModelNotLive,
    ModelRetired,
    ModelUnknown,
    PreconditionFailed,
    TargetTooWeak,
    VersionUnknown,
    WeightsDestroyed,
)
from lethe.contract.quality import QualityIn
from lethe.contract.sets import ModelStatus, RunKind, VersionStatus
from lethe.encoding import schema
from lethe.proof.mechanism import Mechanism
from lethe.proof.network import PublicNetwork


def create_model(
    session: Session,
    *,
    name: str,
    dataset: Dataset,
    evaluation_dataset: Dataset | None,
    epsilon: float,
    delta: float | None,
    objective: str | None,
    loss_width: float | None,
    weakest: tuple[float, float],
    l2: float | None,
    noise_scale: float | None,
    step_size: float | None,
    radius: float | None,
    learn_steps: int | None,
    batch_size: int | None,
    cool_down: int | None,
    second_moment: float | None,
    class_weights: dict[str, float] | None,
    max_requests: int | None,
    max_wait_seconds: int,
    audit_lanes: int,
    audit_chains: int,
    gate: QualityIn | None,
    max_steps: int,
    tangent: tuple[PublicNetwork, int] | None,
) -> Model:
    """Freeze the mechanism and ask for the first learning run. `weakest`: the epsilon and delta that the target may
    have at most.

    That nobody is in both datasets was checked before (`app.catalogue.evaluation`). Raises `DatasetRetired`,
    `PreconditionFailed` for an evaluation dataset of another shape, `TargetTooWeak`, and what `mechanisms.of` raises.
    """
    datasets.require_kept(dataset)
    if evaluation_dataset:
        datasets.require_kept(evaluation_dataset)
    if evaluation_dataset and not _same_shape(dataset, evaluation_dataset):
        raise PreconditionFailed(
            "The evaluation dataset must have the same features, and classes or target, as the dataset."
        )
    if second_moment is not None and repository.waiting_additions(session, dataset_id=dataset.id):
        raise PreconditionFailed(
            "Rows wait to be added to this dataset: make a model with second_moment once they are in it.",
            [FieldError("second_moment", "expected none while rows wait")],
        )
    delta = mechanisms.default_delta(dataset) if delta is None else delta
    _check_target(epsilon, delta, weakest)
    mechanism = mechanisms.of(
        dataset,
        epsilon=epsilon,
        delta=delta,
        objective=objective,
        loss_width=loss_width,
        l2=l2,
        noise_scale=noise_scale,
        step_size=step_size,
        radius=radius,
        learn_steps=learn_steps,
        batch_size=batch_size,
        cool_down=cool_down,
        second_moment=second_moment,
        class_weights=class_weights,
        max_steps=max_steps,
        tangent=tangent,
    )
    if encoder := datasets.network_of(session, dataset):
        mechanism = replace(mechanism, network=encoder)
    model = Model(
        id=new_id("mdl"),
        tenant_id=actor(session).tenant_id,
        name=name,
        dataset_id=dataset.id,
        evaluation_dataset_id=evaluation_dataset and evaluation_dataset.id,
        mechanism=mechanism.to_json(),
        epsilon=epsilon,
        delta=delta,
        max_requests=max_requests,
        max_wait_seconds=max_wait_seconds,
        audit_lanes=audit_lanes,
        audit_chains=audit_chains,
        quality=quality.stored_gate(gate, mechanism, is_evaluated=evaluation_dataset is not None),
        status=ModelStatus.LEARNING,
        wanted=RunKind.LEARN,
        created_at=now(session),
    )
    session.add(model)
    audit.record(session, "model.created", model.id, dataset_id=dataset.id)
    return model


def _check_target(epsilon: float, delta: float, weakest: tuple[float, float]) -> None:
    """Raises `TargetTooWeak`, which names the bounds."""
    asked = {"target.epsilon": epsilon, "target.delta": delta}
    faults = [
        FieldError(name, f"expected at most {most:.10g}")
        for (name, value), most in zip(asked.items(), weakest, strict=True)
        if value > most
    ]
    if faults:
        most_epsilon, most_delta = weakest
        raise TargetTooWeak(
            f"Expected epsilon <= {most_epsilon:.10g} and delta <= {most_delta:.10g}: what meets a weaker target is "
            "not forgotten. Only an admin can widen this, by max_epsilon and max_delta of the tenant's policy.",
            faults,
        )


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
    """Raises `ModelNotLive`, `ModelRetired`."""
    require_kept(model)
    version = repository.live_version(session, model)
    if version is None:
        raise ModelNotLive(f"Model {model.id} is {model.status}; wait until its first version is published.")
    return version


def require_kept(model: Model) -> None:
    """Raises `ModelRetired`."""
    if model.retired_at is not None:
        raise ModelRetired(f"Model {model.id} was retired, and its weights are destroyed; make another one.")


def relearn(session: Session, model: Model) -> None:
    """Ask for a run from scratch on the present data. Raises `ModelRetired`."""
    require_kept(model)
    if model.wanted is None:
        model.wanted = RunKind.RELEARN if model.live_version else RunKind.LEARN
        model.status = ModelStatus.LIVE if model.live_version else ModelStatus.LEARNING
        model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    audit.record(session, "model.relearn_asked", model.id)


def ask_audit(session: Session, model: Model) -> None:
    """Ask for an audit on canaries alone: no rows of people are read, and no version is made. Raises `ModelNotLive`,
    `ModelRetired`."""
    get_live_version(session, model)
    if not model.audit_lanes:
        raise PreconditionFailed("This model was created without canaries, and so its runs have no canary test.")
    model.audit_asked_at = model.audit_asked_at or now(session)
    audit.record(session, "model.audit_asked", model.id)


def mechanism_of(model: Model) -> Mechanism:
    """Raises `MechanismUnreadable`."""
    return stored_mechanism(model.mechanism)


def publish_version(
    session: Session, *, run: Run, model: Model, weights_sha256: str, metrics: dict[str, Any]
) -> Version:
    """Put the run's version in service, unless its gate holds it back, and retire the one before it either way, in the
    caller's transaction."""
    previous = repository.live_version(session, model)
    if previous:
        previous.status = VersionStatus.RETIRED
    version = Version(
        id=run.version_id,
        model_id=model.id,
        number=(model.live_version or 0) + 1,
        status=VersionStatus.LIVE,
        run_id=run.id,
        revision=run.revision,
        weights_sha256=weights_sha256,
        metrics=metrics,
        published_at=now(session),
    )
    session.add(version)
    quality.judge(session, model, version)
    model.live_version, model.status = version.number, ModelStatus.LIVE
    model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    if run.kind != RunKind.UNLEARN:
        model.wanted = None
    return version


def read_weights(store: WeightStore, version: Version) -> bytes:
    """The safetensors bytes of the version in service. Raises `WeightsDestroyed` for any other, `ModelHeld`."""
    require_live(version)
    quality.require_served(version)
    return store.get(version.id)


def require_live(version: Version) -> None:
    """Raises `WeightsDestroyed`."""
    if version.status != VersionStatus.LIVE:
        raise WeightsDestroyed(
            f"Version {version.number} was superseded; its weights are gone, and with them whoever was forgotten since."
        )


def destroy(store: WeightStore, version_ids: Iterable[str]) -> list[str]:
    """Destroy the weights of these versions; returns those that are gone. What the disk refuses is tried again the
    next time. It takes as long as the store takes: for no transaction."""
    gone = []
    for version_id in version_ids:
        try:
            store.destroy(version_id)
        except OSError as error:
            code = type(error).__name__
            telemetry.logger().error("registry.weights_not_destroyed", version_id=version_id, error=code)
        else:
            gone.append(version_id)
    return gone


def _same_shape(one: Dataset, other: Dataset) -> bool:
    return (
        schema.is_same(one.schema, other.schema)
        and one.network_id == other.network_id
        and one.num_features == other.num_features
        and one.classes == other.classes
        and one.target == other.target
    )
