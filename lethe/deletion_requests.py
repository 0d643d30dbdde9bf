"""`client.deletion_requests`: people who ask to be forgotten."""

import datetime
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Literal

from lethe import batches, files, runs
from lethe.batches import Batch, BatchItem, NewRequest
from lethe.certificates import Certificate, CertificatesOfRequest
from lethe.endpoints import Endpoint, given
from lethe.errors import Malformed, NotAllowed
from lethe.http import Http
from lethe.runs import Run
from lethe.values import Page
from lethe.waiting import Progress, Watch

Ground = Literal[
    "not_necessary", "consent_withdrawn", "objection", "unlawful_processing", "legal_obligation", "child_services"
]
RejectionGround = Literal[
    "free_expression",
    "legal_obligation",
    "public_health",
    "archiving_research",
    "legal_claims",
    "manifestly_unfounded",
    "identity_not_established",
]

ENDED = frozenset({"completed", "cancelled", "rejected"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOfModel:
    model_id: str
    kind: str
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    steps: int
    models: tuple[EstimateOfModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedByModel:
    """What a request asks of one model. `status`: pending, running, completed, cancelled, destroyed (nothing is left of
    the model), or nothing_published (it never had a version)."""

    model_id: str
    status: str
    run_id: str | None
    version: int | None
    certificate_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """`state`: on_time, at_risk, overdue, paused or ended. `days_left`: below 0 once the deadline has passed."""

    state: str
    deadline: datetime.datetime
    paused_since: datetime.datetime | None
    days_left: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    ground: str
    explanation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRequest:
    """`estimate`: what it will take, while it is waiting. `held_until`: no worker takes it before. What was said about
    the person is not part of the `repr`, which ends up in logs."""

    id: str
    status: str
    outcome: str | None
    subject_ref: str = field(repr=False)
    alias_refs: tuple[str, ...] = field(repr=False)
    regulation: str
    ground: str | None
    external_id: str | None = field(repr=False)
    metadata: dict[str, str] = field(repr=False)
    submitted_at: datetime.datetime
    due_at: datetime.datetime
    extended_due_at: datetime.datetime | None
    extension_reason: str | None = field(repr=False)
    clock: Clock
    held_until: datetime.datetime | None
    rejection: Rejection | None = field(repr=False)
    source: str | None
    refers_to: str | None
    created_at: datetime.datetime
    completed_at: datetime.datetime | None
    kept: str
    estimate: Estimate | None
    models: tuple[OwedByModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent:
    """`actor`: the API key that did it, or lethe."""

    at: datetime.datetime
    status: str
    detail: str | None
    actor: str


CREATE = Endpoint("POST", "/v1/deletion-requests", DeletionRequest, keyed=True)
CREATE_BATCH = Endpoint("POST", "/v1/deletion-requests:batch", Batch, keyed=True)
CREATE_FROM_CSV = Endpoint("POST", "/v1/deletion-requests.csv", Batch, keyed=True)
EXPORT = Endpoint("GET", "/v1/deletion-requests.csv", bytes)
LIST = Endpoint("GET", "/v1/deletion-requests", Page[DeletionRequest])
GET = Endpoint("GET", "/v1/deletion-requests/{request_id}", DeletionRequest)
EVENTS = Endpoint("GET", "/v1/deletion-requests/{request_id}/events", Page[RequestEvent])
CANCEL = Endpoint("POST", "/v1/deletion-requests/{request_id}/cancel", DeletionRequest)
APPROVE = Endpoint("POST", "/v1/deletion-requests/{request_id}/approve", DeletionRequest, idempotent=True)
REJECT = Endpoint("POST", "/v1/deletion-requests/{request_id}/reject", DeletionRequest, idempotent=True)
EXTEND = Endpoint("POST", "/v1/deletion-requests/{request_id}/extend", DeletionRequest)
PAUSE = Endpoint("POST", "/v1/deletion-requests/{request_id}/pause", DeletionRequest, idempotent=True)
RESUME = Endpoint("POST", "/v1/deletion-requests/{request_id}/resume", DeletionRequest, idempotent=True)
CERTIFICATES = Endpoint("GET", "/v1/deletion-requests/{request_id}/certificate", CertificatesOfRequest)


class DeletionRequests:
    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        *,
        subject_id: str | None = None,
        subject_sha256: str | None = None,
        aliases: Sequence[str] | None = None,
        regulation: str = "gdpr",
        dataset_ids: list[str] | None = None,
        ground: Ground | None = None,
        submitted_at: datetime.datetime | None = None,
        external_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        callback_url: str | None = None,
        refers_to: str | None = None,
        identity_verified: bool | None = None,
        identity_statement: str | None = None,
        strict: bool = False,
        idempotency_key: str | None = None,
    ) -> DeletionRequest:
        """Ask for a person to be forgotten: once the answer is here, the request cannot be lost.

        Either `subject_id` or its SHA-256 (hex) says who, and `aliases` are other ids of theirs, which are forgotten
        too. `dataset_ids`: default all that hold the person;
        `callback_url`: where to report what becomes of it; `identity_verified=False`: it waits in review; `strict`:
        raise `NotFound` if nothing is held (needs the scope admin).
        """
        body = given(
            subject_id=subject_id,
            subject_sha256=subject_sha256,
            aliases=list(aliases) if aliases else None,
            regulation=regulation,
            dataset_ids=dataset_ids,
            ground=ground,
            submitted_at=submitted_at.isoformat() if submitted_at else None,
            external_id=external_id,
            metadata=metadata,
            callback_url=callback_url,
            refers_to=refers_to,
            identity_verified=identity_verified,
            identity_statement=identity_statement,
        )
        query = {"strict": "true"} if strict else {}
        return self._http.call(CREATE, params=query, json=body, idempotency_key=idempotency_key)

    def create_batch(
        self, requests: Iterable[NewRequest], *, source: str | None = None, idempotency_key: str | None = None
    ) -> Batch:
        """Ask for up to 10,000 people to be forgotten: some may be refused. `source`: a name of the list that they are
        from, to find them by. Raises `Malformed` (`batch_refused`) if none was accepted."""
        body = {"requests": [batches.body_of(one) for one in requests]}
        query = given(source=source)
        return self._http.call(CREATE_BATCH, params=query, json=body, idempotency_key=idempotency_key)

    def create_many(
        self,
        requests: Iterable[NewRequest],
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        batch_size: int = 1000,
        progress: Callable[[int, int], object] | None = None,
    ) -> Iterator[BatchItem]:
        """The same for any number, in batches, each sent when its first result is asked for; a result for each request,
        in their order. `progress` is told how many were accepted and refused so far.

        With your own `idempotency_key`, whoever was interrupted makes the same call again: what was asked before is
        answered as it was, and nothing is made twice. Raises a `Problem` for what concerns more than one request.
        """
        key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
        accepted = refused = 0
        for start, batch in batches.cut(requests, size=batch_size):
            try:
                sent = self.create_batch(batch, source=source, idempotency_key=batches.key_of(key, start=start))
                found: Iterable[BatchItem] = sent.items
            except Malformed as problem:
                if problem.code != "batch_refused":
                    raise
                found = batches.all_refused(problem, size=len(batch))
            for item in found:
                accepted, refused = accepted + item.accepted, refused + (not item.accepted)
                yield replace(item, index=start + item.index)
            if progress is not None:
                progress(accepted, refused)

    def create_from_csv(
        self, content: bytes, *, source: str | None = None, idempotency_key: str | None = None
    ) -> Batch:
        """The same as `create_batch`, from CSV in UTF-8 whose header has the fields of a request."""
        return self._http.call(
            CREATE_FROM_CSV,
            params=given(source=source),
            content=content,
            content_type="text/csv",
            idempotency_key=idempotency_key,
        )

    def export(
        self,
        to: str | Path | BinaryIO,
        *,
        status: str | None = None,
        subject_id: str | None = None,
        subject_sha256: str | None = None,
        model_id: str | None = None,
        external_id: str | None = None,
        source: str | None = None,
        regulation: str | None = None,
        refers_to: str | None = None,
        due_before: datetime.datetime | None = None,
    ) -> None:
        """Write all requests, or those that are so, as CSV, newest first, in flat memory. A file that is named is
        complete or left as it was."""
        pieces = self._http.pieces(
            EXPORT,
            status=status,
            subject_id=subject_id,
            subject_sha256=subject_sha256,
            model_id=model_id,
            external_id=external_id,
            source=source,
            regulation=regulation,
            refers_to=refers_to,
            due_before=_text(due_before),
        )
        files.write(to, pieces)

    def get(self, request_id: str) -> DeletionRequest:
        return self._http.call(GET, request_id)

    def events(self, request_id: str) -> Iterator[RequestEvent]:
        """Every change of the request, oldest first."""
        return self._http.pages(EVENTS, request_id)

    def cancel(self, request_id: str) -> DeletionRequest:
        """Withdraw it. Raises `Conflict` once a worker has taken it, because erasing has no way back."""
        return self._http.call(CANCEL, request_id)

    def approve(self, request_id: str) -> DeletionRequest:
        """Accept what is in review. This and the four below need the scope admin."""
        return self._http.call(APPROVE, request_id)

    def reject(self, request_id: str, *, ground: RejectionGround, explanation: str) -> DeletionRequest:
        """Refuse to forget; `explanation` is for the person."""
        return self._http.call(REJECT, request_id, json={"ground": ground, "explanation": explanation})

    def extend(self, request_id: str, *, reason: str) -> DeletionRequest:
        """Extend the deadline as the regulation allows, once; `reason` is for the person."""
        return self._http.call(EXTEND, request_id, json={"reason": reason})

    def pause(self, request_id: str) -> DeletionRequest:
        """Stop the clock of a request in review while the person's identity is being established."""
        return self._http.call(PAUSE, request_id, json={"reason": "identity"})

    def resume(self, request_id: str) -> DeletionRequest:
        return self._http.call(RESUME, request_id)

    def certificates(self, request_id: str) -> tuple[Certificate, ...]:
        """Of every model that has forgotten so far."""
        return self.proof(request_id).certificates

    def proof(self, request_id: str) -> CertificatesOfRequest:
        """The certificates, what all models tell together, and, if nothing was held, a signed statement of that."""
        return self._http.call(CERTIFICATES, request_id)

    def wait(
        self, request_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> DeletionRequest:
        """The request as soon as it has ended: completed, cancelled or rejected. Raises `WaitTimedOut`."""
        watch = Watch(what=f"deletion request {request_id}", timeout_seconds=timeout_seconds)
        steps = _Steps(self._http)
        while True:
            request = self._http.call(GET, request_id, within=watch.left)
            if progress is not None:
                progress(request.status, *steps.of(request))
            if request.status in ENDED:
                return request
            watch.pause(status=request.status)

    def list(
        self,
        *,
        status: str | None = None,
        subject_id: str | None = None,
        subject_sha256: str | None = None,
        model_id: str | None = None,
        external_id: str | None = None,
        source: str | None = None,
        regulation: str | None = None,
        refers_to: str | None = None,
        due_before: datetime.datetime | None = None,
        order: Literal["newest", "deadline"] | None = None,
    ) -> Iterator[DeletionRequest]:
        """All, or those that are so, newest first. `due_before`: open ones whose deadline is earlier. `order`:
        `deadline` for open ones alone, the most urgent first."""
        return self._http.pages(
            LIST,
            status=status,
            subject_id=subject_id,
            subject_sha256=subject_sha256,
            model_id=model_id,
            external_id=external_id,
            source=source,
            regulation=regulation,
            refers_to=refers_to,
            due_before=_text(due_before),
            order=order,
        )


def _text(moment: datetime.datetime | None) -> str | None:
    return moment.isoformat() if moment else None


class _Steps:
    """The steps of a request: of its runs, and those estimated where none has begun. A key that may not read runs knows
    none."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._over: dict[str, Run] = {}
        self._may_read = True

    def of(self, request: DeletionRequest) -> tuple[int, int | None]:
        """Done, and in all (None: unknown)."""
        estimated = {one.model_id: one.steps for one in request.estimate.models} if request.estimate else {}
        done = total = 0
        for owed in request.models:
            if owed.status == "pending":
                total += estimated.get(owed.model_id, 0)
            elif owed.run_id and (run := self._run(owed.run_id)):
                done, total = done + run.steps_done, total + run.steps_total
        return done, total if self._may_read and total else None

    def _run(self, run_id: str) -> Run | None:
        if run_id in self._over or not self._may_read:
            return self._over.get(run_id)
        try:
            run = self._http.call(runs.GET, run_id)
        except NotAllowed:
            self._may_read = False
            return None
        if run.finished_at is not None:
            self._over[run_id] = run
        return run
