"""`client.accounting`: how much of anybody is left, and what the next request will take."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lethe.endpoints import Endpoint, given
from lethe.http import Http
from lethe.values import Guarantee, Joint, Page, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRequest:
    kind: str
    steps: int
    epsilon_without_steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasesLeft:
    """`count`: versions that still fit the `adaptive` budget; None if it is exceeded already."""

    epsilon: float
    delta: float
    steps_per_release: int
    records: int
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    steps: int
    guarantee: Guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where a model's live version stands, and what forgetting one more record would take."""

    model_id: str
    version: int
    influence: float
    noise_variance: float
    mu: float
    guarantees: tuple[Guarantee, ...]
    releases: int
    next_request: NextRequest
    releases_left: ReleasesLeft
    reset: Reset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    sequence: int
    body: dict[str, Any]
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerVerdict:
    """`fault`: the entry and the part of it that do not follow. `head`: the hash of the last entry. `not_recomputed`:
    entries of an earlier format, of which the hashes hold; the numbers are not recomputed."""

    model_id: str
    valid: bool
    fault: str | None
    entries: int | None
    not_recomputed: int | None
    head: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epsilons:
    """By notion, each rounded up; they are never added."""

    unlearning: float
    deletion: float | None
    adaptive: float
    release: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where the chain stands `step` steps into a run; `epsilon_of_one`: what deleting one record here would leave."""

    step: int
    influence: float
    presence: float
    noise_variance: float
    epsilon: Epsilons
    epsilon_of_one: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The steps behind one ledger entry; `adaptive`: of the person with most records, `largest`, whom it forgot."""

    sequence: int
    version: int
    kind: str
    run_id: str
    revision: int
    recorded_at: datetime.datetime
    steps_before: int
    steps: int
    records: int
    requests: int
    largest: int | None
    guarantees: tuple[Guarantee, ...]
    adaptive: Guarantee | None
    exports: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    kind: str
    steps: int
    reason: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRequest:
    request_id: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBudget:
    """`room`: records that can be forgotten together before learning again is no dearer; `relearning`: open requests
    that leave no choice."""

    model_id: str
    version: int | None
    target: Target
    releases: int
    mu: float
    releases_left: ReleasesLeft | None
    room: int | None
    next_run: NextRun | None
    relearning: tuple[LargeRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOfDataset:
    """`used`: the `adaptive` guarantee of one record that fed every version of every model so far."""

    dataset_id: str
    used: Guarantee | None
    models: tuple[ModelBudget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What was signed about one model, and what holds of its live version today. `signed`: nothing of a certificate of
    an earlier format, which cannot be verified any more."""

    model_id: str
    certificate_id: str
    version: int
    signed: tuple[Guarantee, ...]
    today: tuple[Guarantee, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOfRequest:
    """`joint`: what all models that carried the person tell together; None until every one has forgotten."""

    request_id: str
    models: tuple[Statement, ...]
    joint: Joint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEstimate:
    """How long this model's runs take, measured on its last ones."""

    seconds_per_run: float
    seconds_per_step: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    kind: str
    steps: int
    steps_per_request: float
    epsilon: float
    seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The records forgotten `batch` at a time."""

    batch: int
    runs: int
    relearned: int
    steps: int
    longest: int
    seconds: float | None
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What forgetting would take; `options`: what else could be done, cheapest per request first."""

    kind: str
    steps: int
    reason: str
    seconds: float | None
    epsilon_without_steps: float
    guarantees: tuple[Guarantee, ...]
    schedule: Schedule
    options: tuple[Option, ...]
    pace: RuntimeEstimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no number: the precondition that fails, or domain, notion, infeasible, time."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One way to serve a request; `steps` is None where `refused` says why."""

    name: str
    title: str
    notion: str
    adjacency: str
    reference_process: str
    reference: str
    assumptions: tuple[str, ...]
    bound: str | None
    steps: int | None
    seconds: float | None
    noise_std: float | None
    refused: Refusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    model_id: str
    records: int
    target: Target
    rivals: tuple[Rival, ...]
    pace: RuntimeEstimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundParameter:
    name: str
    kind: str
    description: str
    meaning: str
    unit: str
    interval: str | None
    low: float | None
    high: float | None
    is_hypothesis: bool
    required: bool
    default: Any
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A theorem of the calculator."""

    name: str
    title: str
    reference: str
    statement: str
    assumptions: tuple[str, ...]
    parameters: tuple[BoundParameter, ...]
    outputs: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One point of a sweep: either `outputs` or `refused`."""

    value: float
    outputs: dict[str, Any] | None
    refused: Refusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    name: str
    over: str
    points: tuple[Swept, ...]


MODEL = Endpoint("GET", "/v1/accounting/models/{model_id}", Account)
LEDGER = Endpoint("GET", "/v1/accounting/models/{model_id}/ledger", Page[LedgerEntry])
VERDICT = Endpoint("GET", "/v1/accounting/models/{model_id}/ledger/verdict", LedgerVerdict)
TRAJECTORY = Endpoint("GET", "/v1/accounting/models/{model_id}/trajectory", Page[Segment])
RIVALS = Endpoint("GET", "/v1/accounting/models/{model_id}/rivals", Rivals)
DATASET = Endpoint("GET", "/v1/accounting/datasets/{dataset_id}", AccountOfDataset)
DELETION_REQUEST = Endpoint("GET", "/v1/accounting/deletion-requests/{request_id}", AccountOfRequest)
PREVIEW = Endpoint("POST", "/v1/accounting/preview", Preview, idempotent=True)
BOUNDS = Endpoint("GET", "/v1/accounting/bounds", Page[Bound])
EVALUATE = Endpoint("POST", "/v1/accounting/bounds/{name}", dict[str, Any], idempotent=True)
SWEEP = Endpoint("POST", "/v1/accounting/bounds/{name}/sweep", Sweep, idempotent=True)


class Accounting:
    """The gateway answers, and the accounting service alone."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def model(
        self, model_id: str, *, adaptive_epsilon: float | None = None, adaptive_delta: float | None = None
    ) -> Account:
        """Where the live version stands; `adaptive_*`: the budget for `releases_left`. Raises `Conflict` if none is."""
        query = given(adaptive_epsilon=adaptive_epsilon, adaptive_delta=adaptive_delta)
        return self._http.call(MODEL, model_id, params=query)

    def ledger(self, model_id: str) -> Iterator[LedgerEntry]:
        """Hash-chained entries, oldest first, so that they can be replayed as they come."""
        return self._http.pages(LEDGER, model_id)

    def verify_ledger(self, model_id: str) -> LedgerVerdict:
        """Have the service recompute every hash and number of the ledger."""
        return self._http.call(VERDICT, model_id)

    def trajectory(self, model_id: str, *, points: int | None = None) -> Iterator[Segment]:
        """Influence and epsilon after each step of the model's life, run by run, newest first: for plots, with at most
        `points` of each run."""
        return self._http.pages(TRAJECTORY, model_id, points=points)

    def rivals(
        self, model_id: str, *, num_records: int | None = None, epsilon: float | None = None, delta: float | None = None
    ) -> Rivals:
        """What other published guarantees need for the same request on this model's problem."""
        query = given(num_records=num_records, epsilon=epsilon, delta=delta)
        return self._http.call(RIVALS, model_id, params=query)

    def dataset(
        self, dataset_id: str, *, adaptive_epsilon: float | None = None, adaptive_delta: float | None = None
    ) -> AccountOfDataset:
        """What one record has spent in all versions of all models, and what is left of a budget."""
        query = given(adaptive_epsilon=adaptive_epsilon, adaptive_delta=adaptive_delta)
        return self._http.call(DATASET, dataset_id, params=query)

    def deletion_request(self, request_id: str) -> AccountOfRequest:
        """What was signed about a person, and what holds today."""
        return self._http.call(DELETION_REQUEST, request_id)

    def preview(
        self,
        model_id: str,
        *,
        num_records: int = 1,
        epsilon: float | None = None,
        delta: float | None = None,
        steps: int | None = None,
        batch: int | None = None,
        expected_requests: int | None = None,
    ) -> Preview:
        """What forgetting would take, to the model's target or another, or what so many `steps` would reach.

        `schedule`: the same, `batch` records at a time. Nothing is changed."""
        body = given(
            model_id=model_id,
            num_records=num_records,
            epsilon=epsilon,
            delta=delta,
            steps=steps,
            batch=batch,
            expected_requests=expected_requests,
        )
        return self._http.call(PREVIEW, json=body)

    def bounds(self) -> Iterator[Bound]:
        """Every theorem of the calculator."""
        return self._http.pages(BOUNDS)

    def evaluate(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """A theorem's outputs: infinity is "inf", and "1/n" stands for the reciprocal of the parameter n."""
        return self._http.call(EVALUATE, name, json={"params": params})

    def sweep(
        self,
        name: str,
        params: dict[str, Any],
        *,
        over: str,
        low: float,
        high: float,
        points: int | None = None,
        scale: str | None = None,
    ) -> Sweep:
        """A theorem over a grid of one of its parameters; `scale`: linear or log. What is refused says why."""
        body = given(params=params, over=over, low=low, high=high, points=points, scale=scale)
        return self._http.call(SWEEP, name, json=body)
