"""Models and their versions: creation, retraining, quality gates, publication and destruction.

A feature judges whether a published version meets its model's gate. Without such a feature, a model with a gate cannot
be created, and versions of existing models with a gate are held back.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app import telemetry
from app.audit import service as audit
from app.catalogue import datasets, mechanisms, repository
from app.db import actor, now, tables
from app.vault.sealing import WeightStore
from lethe import sockets
from lethe.contract import models, problems, sets
from lethe.encoding import schema
from lethe.proof import methods, network
from lethe.proof.mechanism import Mechanism

HandedOut = Callable[[Session, tables.Version], dict[str, str]]
"""`HANDED_OUT` hook: record an export of a version's weights in the caller's transaction, and return details for the
audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judge of versions, plugged in as `JUDGES` in a feature's `hooks` module.

    `to_stored` returns a gate as its model stores it, given whether the model has evaluation data, and raises
    `PreconditionFailed` if the gate can never be judged. `judge` sets a version's `degraded` and `held`. `describe`
    returns a model's gate and whether its version meets it, or None if the model has no gate.
    """

    to_stored: Callable[[models.QualityIn, Mechanism, bool], dict[str, Any]]
    judge: Callable[[Session, tables.Model, tables.Version], None]
    describe: Callable[[tables.Model, tables.Version | None], models.QualityOut | None]


def _judges() -> tuple[Judge, ...]:
    return sockets.plugs("app.features", "hooks", "JUDGES")


def stored_gate(gate: models.QualityIn | None, mechanism: Mechanism, *, is_evaluated: bool) -> dict[str, Any] | None:
    """Return a gate as its model stores it; None if there is no gate.

    Raises `PreconditionFailed` if the gate can never be judged.
    """
    if gate is None:
        return None
    for judge in _judges():
        return judge.to_stored(gate, mechanism, is_evaluated)
    raise problems.PreconditionFailed.no_gates([problems.FieldError("quality", "expected no quality gate")])


def judge_version(session: Session, model: tables.Model, version: tables.Version) -> None:
    """Judge a version by its model's gate. If no feature can judge the gate, the version is held back."""
    judges = _judges()
    if not judges:
        version.degraded = version.held = model.quality is not None
    for judge in judges:
        judge.judge(session, model, version)


def described_gate(model: tables.Model, version: tables.Version | None) -> models.QualityOut | None:
    """Return a model's gate and whether `version` meets it; None without a gate or a feature that evaluates gates."""
    return next((judge.describe(model, version) for judge in _judges()), None)


def require_served(version: tables.Version) -> None:
    """Raise `ModelHeld` if a version is held back by its model's gate."""
    if version.held:
        raise problems.ModelHeld(number=version.number, model_id=version.model_id)


def create_model(
    session: Session,
    body: models.ModelIn,
    *,
    dataset: tables.Dataset,
    evaluation_dataset: tables.Dataset | None,
    weakest: tuple[float, float],
    max_steps: int,
    tangent: tuple[network.PublicNetwork, int] | None,
) -> tables.Model:
    """Create a model: fix its mechanism and request the first training run.

    `weakest` gives the largest epsilon and delta allowed as the target. The caller has checked that the datasets share
    no people (`app.catalogue.evaluation`). Raises `DatasetRetired`, `PreconditionFailed` for an evaluation dataset of a
    different shape, `TargetTooWeak`, and the errors of `mechanisms.of`.
    """
    datasets.require_kept(dataset)
    if evaluation_dataset:
        datasets.require_kept(evaluation_dataset)
    if evaluation_dataset and not _same_shape(dataset, evaluation_dataset):
        raise problems.PreconditionFailed.features()
    if body.second_moment is not None and repository.waiting_additions(session, dataset_id=dataset.id):
        raise problems.PreconditionFailed.rows_wait(
            [problems.FieldError("second_moment", "expected none while rows wait")]
        )
    _check_target(body.target.epsilon, mechanisms.delta_of(dataset, body.target), weakest)
    encoder = datasets.network_of(session, dataset)
    mechanism = mechanisms.of(dataset, body, max_steps=max_steps, tangent=tangent, encoder=encoder)
    model = tables.Model(
        id=tables.new_id("mdl"),
        tenant_id=actor(session).tenant_id,
        name=body.name,
        dataset_id=dataset.id,
        evaluation_dataset_id=evaluation_dataset and evaluation_dataset.id,
        mechanism=mechanism.to_json(),
        method=mechanism.method,
        epsilon=body.target.epsilon,
        delta=mechanisms.delta_of(dataset, body.target),
        max_requests=body.batching.max_requests,
        max_wait_seconds=body.batching.max_wait_seconds,
        audit_lanes=body.audit.lanes,
        audit_chains=body.audit.chains,
        quality=stored_gate(body.quality, mechanism, is_evaluated=evaluation_dataset is not None),
        status=sets.ModelStatus.LEARNING,
        wanted=sets.RunKind.LEARN,
        created_at=now(session),
    )
    session.add(model)
    audit.record(session, "model.created", model.id, dataset_id=dataset.id)
    return model


def _check_target(epsilon: float, delta: float, weakest: tuple[float, float]) -> None:
    """Raise `TargetTooWeak`, naming the allowed bounds, if the target exceeds them."""
    stated = {"target.epsilon": epsilon, "target.delta": delta}
    faults = [
        problems.FieldError(name, f"expected at most {most:.10g}")
        for (name, value), most in zip(stated.items(), weakest, strict=True)
        if value > most
    ]
    if faults:
        most_epsilon, most_delta = weakest
        raise problems.TargetTooWeak(errors=faults, most_epsilon=most_epsilon, most_delta=most_delta)


def get_model(session: Session, model_id: str) -> tables.Model:
    """Return a model. Raises `ModelUnknown`."""
    return problems.ModelUnknown.if_none(session.get(tables.Model, model_id), model_id=model_id)


def get_version(session: Session, *, model_id: str, number: int) -> tables.Version:
    """Return a version of a model. Raises `ModelUnknown`, `VersionUnknown`."""
    get_model(session, model_id)
    version = repository.version(session, model_id=model_id, number=number)
    return problems.VersionUnknown.if_none(version, model_id=model_id, number=number)


def get_live_version(session: Session, model: tables.Model) -> tables.Version:
    """Return the live version of a model. Raises `ModelNotLive`, `ModelRetired`."""
    require_kept(model)
    version = repository.live_version(session, model)
    return problems.ModelNotLive.if_none(version, model_id=model.id, status=model.status)


def require_kept(model: tables.Model) -> None:
    """Raise `ModelRetired` if the model is retired."""
    if model.retired_at is not None:
        raise problems.ModelRetired(model_id=model.id)


def relearn(session: Session, model: tables.Model) -> None:
    """Request a run from scratch on the current data. Raises `ModelRetired`."""
    require_kept(model)
    if model.wanted is None:
        model.wanted = sets.RunKind.RELEARN if model.live_version else sets.RunKind.LEARN
        model.status = sets.ModelStatus.LIVE if model.live_version else sets.ModelStatus.LEARNING
        model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    audit.record(session, "model.relearn_asked", model.id)


def mechanism_of(model: tables.Model) -> Mechanism:
    """Return a model's mechanism. Raises `MechanismUnreadable`."""
    return tables.stored_mechanism(model.mechanism)


def langevin_of(model: tables.Model) -> Mechanism:
    """Return the mechanism of a model whose runs continue its live version. Raises `PreconditionFailed` for a model
    with a different method, and `MechanismUnreadable`."""
    mechanism = mechanism_of(model)
    if not methods.of(mechanism).continues:
        raise problems.PreconditionFailed.other_method(model_id=model.id, method=mechanism.method)
    return mechanism


def publish_version(
    session: Session,
    *,
    run: tables.Run,
    model: tables.Model,
    previous: tables.Version | None,
    weights_sha256: str,
    metrics: dict[str, Any],
) -> tables.Version:
    """Publish a run's version, held back if the model's gate requires it, and retire the `previous` live version. Both
    happen in the caller's transaction."""
    if previous:
        previous.status = sets.VersionStatus.RETIRED
    version = tables.Version(
        id=run.version_id,
        model_id=model.id,
        number=(model.live_version or 0) + 1,
        status=sets.VersionStatus.LIVE,
        run_id=run.id,
        revision=run.revision,
        weights_sha256=weights_sha256,
        metrics=metrics,
        published_at=now(session),
    )
    session.add(version)
    judge_version(session, model, version)
    model.live_version, model.status = version.number, sets.ModelStatus.LIVE
    model.attempts, model.deaths, model.not_before, model.error_code = 0, 0, None, None
    if run.kind != sets.RunKind.UNLEARN:
        model.wanted = None
    return version


def read_weights(store: WeightStore, version: tables.Version) -> bytes:
    """Return the weights of a live version in safetensors format. Raises `WeightsDestroyed` if the version is not live,
    and `ModelHeld`."""
    require_live(version)
    require_served(version)
    return store.get(version.id)


def hand_out(session: Session, *, model_id: str, number: int) -> None:
    """Record that a version's weights are about to be exported to the session's actor. Raises `ModelUnknown`,
    `VersionUnknown`, `WeightsDestroyed` if the version is not live, and `ModelHeld`."""
    version = get_version(session, model_id=model_id, number=number)
    if version.status != sets.VersionStatus.LIVE:
        raise problems.WeightsDestroyed.superseded_meanwhile(number=number)
    require_served(version)
    details: dict[str, str] = {}
    for record in sockets.plugs("app.features", "hooks", "HANDED_OUT"):
        details |= record(session, version)
    audit.record(session, "model.weights_exported", model_id, version=number, **details)


def require_live(version: tables.Version) -> None:
    """Raise `WeightsDestroyed` if the version is not live."""
    if version.status != sets.VersionStatus.LIVE:
        raise problems.WeightsDestroyed.superseded(number=version.number)


def destroy(store: WeightStore, version_ids: Iterable[str]) -> list[str]:
    """Destroy versions' weights and return the ids of the versions destroyed. If a deletion fails, the next call
    retries it. Call this outside transactions, because the store may be slow."""
    destroyed = []
    for version_id in version_ids:
        try:
            store.destroy(version_id)
        except OSError as error:
            code = type(error).__name__
            telemetry.logger().error("registry.weights_not_destroyed", version_id=version_id, error=code)
        else:
            destroyed.append(version_id)
    return destroyed


def _same_shape(first: tables.Dataset, second: tables.Dataset) -> bool:
    same = ("network_id", "num_features", "classes", "target")
    return schema.is_same(first.schema, second.schema) and all(
        getattr(first, name) == getattr(second, name) for name in same
    )
