"""`client.models`: models that can forget."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe import runs
from lethe.endpoints import Endpoint, given
from lethe.http import Http
from lethe.runs import Run
from lethe.serving import Serving
from lethe.values import Audit, Guarantee, Page, Target
from lethe.waiting import Progress, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    steps_done: int
    steps_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What was frozen when the model was created, and every guarantee follows from."""

    objective: str
    num_slots: int
    num_classes: int
    l2: float
    strong_convexity: float
    smoothness: float
    gradient_bound: float
    step_size: float
    contraction: float
    noise_scale: float
    step_variance: float
    radius: float
    grid: float
    num_parameters: int
    learn_steps: int
    batch_size: int
    num_batches: int
    cool_down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    max_requests: int | None
    max_wait_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditing:
    """`lanes`: of each run, 0 for none; an audit that is asked for has `chains` times as many. `asked_at`: of one that
    is not done. `last`: of the run that was audited last."""

    lanes: int
    chains: int
    asked_at: datetime.datetime | None
    last: Audit | None
    last_run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`status`: learning, live, unlearning, failed, cancelled or retired. `guarantee`: of the live version, for
    everybody. `destroyed_at`: nothing is left of the weights of what was retired."""

    id: str
    name: str
    dataset_id: str
    evaluation_dataset_id: str | None
    objective: str
    status: str
    live_version: int | None
    progress: Steps | None
    mechanism: Mechanism
    target: Target
    batching: Batching
    audit: Auditing
    guarantee: tuple[Guarantee, ...] | None
    metrics: dict[str, Any]
    error_code: str | None
    created_at: datetime.datetime
    retired_at: datetime.datetime | None
    destroyed_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """`status`: live, retired or destroyed."""

    model_id: str
    number: int
    status: str
    run_id: str
    weights_sha256: str
    metrics: dict[str, Any]
    published_at: datetime.datetime
    destroyed_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    label: str
    probabilities: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    version: int
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Weights that were handed out."""

    id: str
    version: int
    api_key_id: str
    at: datetime.datetime


CREATE = Endpoint("POST", "/v1/models", Model, keyed=True)
LIST = Endpoint("GET", "/v1/models", Page[Model])
GET = Endpoint("GET", "/v1/models/{model_id}", Model)
AUDIT = Endpoint("POST", "/v1/models/{model_id}/audit", Model, keyed=True)
RELEARN = Endpoint("POST", "/v1/models/{model_id}/relearn", Model, keyed=True)
RETIRE = Endpoint("DELETE", "/v1/models/{model_id}", Model, idempotent=True)
VERSIONS = Endpoint("GET", "/v1/models/{model_id}/versions", Page[Version])
VERSION = Endpoint("GET", "/v1/models/{model_id}/versions/{number}", Version)
WEIGHTS = Endpoint("GET", "/v1/models/{model_id}/versions/{number}/weights", bytes)
EXPORTS = Endpoint("GET", "/v1/models/{model_id}/exports", Page[Export])
SERVING = Endpoint("GET", "/v1/models/{model_id}/serving", Serving)
PREDICT = Endpoint("POST", "/v1/models/{model_id}/predictions", Predictions, idempotent=True)


class Models:
    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        *,
        name: str,
        dataset_id: str,
        epsilon: float | None = None,
        delta: float | None = None,
        l2: float | None = None,
        noise_scale: float | None = None,
        step_size: float | None = None,
        radius: float | None = None,
        learn_steps: int | None = None,
        batch_size: int | None = None,
        cool_down: int | None = None,
        evaluation_dataset_id: str | None = None,
        max_requests: int | None = None,
        max_wait_seconds: int | None = None,
        audit_lanes: int | None = None,
        audit_chains: int | None = None,
        idempotency_key: str | None = None,
    ) -> Model:
        """Freeze a model's mechanism and have it learned. `epsilon`, `delta`: the target of every certificate;
        `max_requests`, `max_wait_seconds`: how requests wait for each other; `audit_lanes` of each run, `audit_chains`
        of an audit that is asked for. What is not said the gateway chooses."""
        body = given(
            name=name,
            dataset_id=dataset_id,
            l2=l2,
            noise_scale=noise_scale,
            step_size=step_size,
            radius=radius,
            learn_steps=learn_steps,
            batch_size=batch_size,
            cool_down=cool_down,
            evaluation_dataset_id=evaluation_dataset_id,
            target=given(epsilon=epsilon, delta=delta),
            batching=given(max_requests=max_requests, max_wait_seconds=max_wait_seconds),
            audit=given(lanes=audit_lanes, chains=audit_chains),
        )
        return self._http.call(CREATE, json=body, idempotency_key=idempotency_key)

    def get(self, model_id: str) -> Model:
        return self._http.call(GET, model_id)

    def list(self) -> Iterator[Model]:
        """All, newest first."""
        return self._http.pages(LIST)

    def wait(self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None) -> Model:
        """The model as soon as it is live, or will not be by itself. Raises `WaitTimedOut`."""
        watch = Watch(what=f"model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = self._http.call(GET, model_id, within=watch.left)
            if progress is not None:
                steps = model.progress
                progress(model.status, steps.steps_done if steps else 0, steps.steps_total if steps else None)
            if model.status in ("live", "failed", "cancelled", "retired"):
                return model
            watch.pause(status=model.status)

    def audit(self, model_id: str, *, idempotency_key: str | None = None) -> Model:
        """Let many canaries be learned and forgotten, apart from the model's data and versions: `wait_for_audit`.
        Raises `Conflict` for a model that has no live version."""
        return self._http.call(AUDIT, model_id, idempotency_key=idempotency_key)

    def wait_for_audit(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> Run | None:
        """The run of the last audit that was asked for, as soon as none waits; None if there never was one.
        Raises `WaitTimedOut`."""
        watch = Watch(what=f"the audit of model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            waits = self._http.call(GET, model_id, within=watch.left).audit.asked_at is not None
            of_it = self._http.pages(runs.LIST, model_id=model_id, status="running" if waits else None)
            run = next((run for run in of_it if run.kind == "audit"), None)
            if not waits:
                return run
            status = "running" if run else "waiting"
            if progress is not None:
                progress(status, run.steps_done if run else 0, run.steps_total if run else None)
            watch.pause(status=status)

    def relearn(self, model_id: str, *, idempotency_key: str | None = None) -> Model:
        """Learn again from scratch on the data as they are now; the live version stays in service meanwhile."""
        return self._http.call(RELEARN, model_id, idempotency_key=idempotency_key)

    def retire(self, model_id: str) -> Model:
        """Take it out of service for good, and destroy its weights. Raises `Conflict` while requests wait for it."""
        return self._http.call(RETIRE, model_id)

    def versions(self, model_id: str) -> Iterator[Version]:
        """All, newest first."""
        return self._http.pages(VERSIONS, model_id)

    def version(self, model_id: str, number: int) -> Version:
        return self._http.call(VERSION, model_id, number)

    def weights(self, model_id: str, number: int) -> bytes:
        """The live version as safetensors. Raises `Gone` for one that was superseded, and so destroyed."""
        return self._http.download(WEIGHTS, model_id, number)

    def exports(self, model_id: str, *, version: int | None = None) -> Iterator[Export]:
        """Who was handed which weights, and when, newest first."""
        return self._http.pages(EXPORTS, model_id, version=version)

    def serving(self, model_id: str, *, version: int | None = None, weights_sha256: str | None = None) -> Serving:
        """Whether the live version may be served now, or the one that is named. Raises `NotFound` for one that never
        was."""
        return self._http.call(SERVING, model_id, params=given(version=version, weights_sha256=weights_sha256))

    def predictions(self, model_id: str, records: Sequence[Mapping[str, Any] | Sequence[float]]) -> Predictions:
        """What the live version says: of objects by column name, or of vectors where the dataset has no schema."""
        return self._http.call(PREDICT, model_id, json={"records": records})
