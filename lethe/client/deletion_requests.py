"""`client.deletion_requests`: requests to forget people."""

import datetime
import hashlib
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Literal, TypedDict

from lethe.client.arguments import checked
from lethe.client.http import Options
from lethe.client.methods import H, Keyed, Resource, call, call_one, composed, composed_list, makes, pages, saved
from lethe.client.waiting import Progress, Watch
from lethe.contract import deletion_requests, runs
from lethe.contract.certificates import CertificateOut
from lethe.contract.problems import BatchRefused, InputInvalid, NotAllowed
from lethe.contract.runs import RunOut
from lethe.contract.sets import RequestModelStatus, RequestStatus

ENDED = frozenset({RequestStatus.COMPLETED, RequestStatus.CANCELLED, RequestStatus.REJECTED})
_REFUSED_AT = re.compile(r"requests\.([0-9]+)\.?(.*)", re.DOTALL)
CertificateList = list[CertificateOut]
BatchProgress = Callable[[int, int], object]
"""Callback that receives the numbers of requests accepted and refused so far."""


class NewRequest(TypedDict, total=False):
    """Fields of one request of a batch, as in `client.deletion_requests.create`. Either `subject_id` or
    `subject_sha256` names the person; all other fields are optional."""

    subject_id: str
    subject_sha256: str
    aliases: list[str]
    regulation: str
    dataset_ids: list[str]
    ground: str
    submitted_at: datetime.datetime | str
    external_id: str
    metadata: Mapping[str, str]
    callback_url: str
    refers_to: str
    identity_verified: bool
    identity_statement: str


class _NewRequest(deletion_requests.DeletionRequestIn, deletion_requests.CreateDeletionRequestQuery, Keyed):
    pass


class _NewBatch(deletion_requests.BatchIn, deletion_requests.BatchQuery, Keyed):
    pass


class _Identity(deletion_requests.PauseIn):
    reason: Literal["identity"] = "identity"


class DeletionRequests(Resource[H]):
    create = call(deletion_requests.CREATE, _NewRequest)
    create_batch = call(deletion_requests.CREATE_BATCH, _NewBatch)
    list = pages(deletion_requests.LIST)
    count = call(deletion_requests.COUNT)
    decide = call(deletion_requests.DECIDE)
    get = call(deletion_requests.GET)
    events = pages(deletion_requests.EVENTS)
    cancel = call(deletion_requests.CANCEL)
    approve = call(deletion_requests.APPROVE)
    reject = call(deletion_requests.REJECT)
    extend = call(deletion_requests.EXTEND)
    pause = call_one(deletion_requests.PAUSE, _Identity)
    resume = call(deletion_requests.RESUME)
    proof = call(deletion_requests.CERTIFICATES)
    export = saved(deletion_requests.EXPORT)

    @composed_list
    async def create_many(
        self,
        requests: Iterable[NewRequest],
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        batch_size: int = 1000,
        progress: BatchProgress | None = None,
    ) -> AsyncIterator[deletion_requests.BatchItemOut]:
        """Create any number of requests in batches, as `create_batch` does, and yield a result for each, in order. A
        batch is sent when its first result is consumed.

        With your own `idempotency_key`, an interrupted caller repeats the same call: earlier requests get the same
        answer and are not created twice. Raises a `Problem` for errors that concern more than one request.
        """
        accepted = refused = 0
        for start, batch, options in _batches(requests, source, idempotency_key, batch_size):
            try:
                answer = await self._calls.call(deletion_requests.CREATE_BATCH, arguments=batch, options=options)
                items: Iterable[deletion_requests.BatchItemOut] = answer.items
            except BatchRefused as problem:
                items = _all_refused(problem, size=len(batch.requests))
            for item in items:
                accepted, refused = accepted + item.accepted, refused + (not item.accepted)
                yield item.model_copy(update={"index": start + item.index})
            if progress is not None:
                progress(accepted, refused)

    @composed
    @makes(deletion_requests.CREATE_FROM_CSV)
    async def create_from_csv(
        self, content: bytes, *, source: str | None = None, idempotency_key: str | None = None
    ) -> deletion_requests.BatchOut:
        """Create a batch of requests, as `create_batch` does, from CSV in UTF-8 with a header of request fields."""
        query, options = _csv(content, source, idempotency_key)
        return await self._calls.call(deletion_requests.CREATE_FROM_CSV, arguments=query, options=options)

    @composed
    async def certificates(self, request_id: str) -> CertificateList:
        """Return the certificates of every model that has forgotten so far."""
        return (await self._calls.call(deletion_requests.CERTIFICATES, request_id)).certificates

    @composed
    async def wait(
        self, request_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> deletion_requests.DeletionRequestOut:
        """Return the request as soon as it is completed, cancelled or rejected. Raises `WaitTimedOut`."""
        watch = Watch(subject=f"deletion request {request_id}", timeout_seconds=timeout_seconds)
        steps = _RequestSteps()
        while True:
            request = await self._calls.call(deletion_requests.GET, request_id, options=Options(within=watch.left))
            for run_id in steps.unknown(request) if progress is not None else ():
                try:
                    steps.add(await self._calls.call(runs.GET, run_id))
                except NotAllowed:
                    steps.may_read = False
            if progress is not None:
                progress(request.status, *steps.of(request))
            if request.status in ENDED:
                return request
            await self._calls.sleep(watch.pause(status=request.status))


def cut(requests: Iterable[NewRequest], *, size: int) -> Iterator[tuple[int, list[NewRequest]]]:
    """Yield the batches of an iterable, each with the index of its first request. Raises `Malformed` for a size that
    the gateway refuses."""
    if not 1 <= size <= deletion_requests.MAX_BATCH_REQUESTS:
        raise InputInvalid(f"Expected 1 <= batch_size={size} <= {deletion_requests.MAX_BATCH_REQUESTS}.")
    rest = iter(requests)
    start = 0
    while batch := list(itertools.islice(rest, size)):
        yield start, batch
        start += len(batch)


def _batches(
    requests: Iterable[NewRequest], source: str | None, idempotency_key: str | None, size: int
) -> Iterator[tuple[int, _NewBatch, Options]]:
    """Yield each batch with the index of its first request and an `Idempotency-Key` of its own, which is the same if
    the call is repeated with the same `idempotency_key`."""
    key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
    for start, batch in cut(requests, size=size):
        options = Options(idempotency_key=hashlib.sha256(f"{key}\n{start}".encode()).hexdigest())
        yield start, checked(_NewBatch, {"requests": batch, "source": source}), options


def _all_refused(problem: BatchRefused, *, size: int) -> Iterator[deletion_requests.BatchItemOut]:
    """Yield a rejected item per request of a wholly refused batch. Reasons come from the batch's fault list."""
    faults: dict[int, list[dict[str, str]]] = {}
    for fault in problem.errors:
        if (where := _REFUSED_AT.fullmatch(fault.path)) is not None:
            faults.setdefault(int(where[1]), []).append({"path": where[2], "message": fault.message})
    for index in range(size):
        own = faults.get(index, [])
        detail = "; ".join(f"{part['path']}: {part['message']}" if part["path"] else part["message"] for part in own)
        yield deletion_requests.BatchItemOut(
            index=index,
            status=problem.status or 422,
            code=problem.code,
            detail=detail or problem.detail,
            errors=[part for part in own if part["path"]] or None,
        )


def _csv(
    content: bytes, source: str | None, idempotency_key: str | None
) -> tuple[deletion_requests.BatchQuery, Options]:
    options = Options(
        idempotency_key=idempotency_key, headers={"Content-Type": "text/csv"}, content={"content": content}
    )
    return checked(deletion_requests.BatchQuery, {"source": source}), options


class _RequestSteps:
    """Steps of a request: those of its runs, and estimates for runs that have not begun. They are unknown to a key that
    may not read runs."""

    def __init__(self) -> None:
        self._runs: dict[str, RunOut] = {}
        self.may_read = True

    def add(self, run: RunOut) -> None:
        self._runs[run.id] = run

    def unknown(self, request: deletion_requests.DeletionRequestOut) -> Iterator[str]:
        """Yield the ids of runs to fetch: those that had not ended when last fetched."""
        for progress in request.models:
            run = self._runs.get(progress.run_id or "")
            if run is not None and run.finished_at:
                continue
            if self.may_read and progress.run_id and progress.status is not RequestModelStatus.PENDING:
                yield progress.run_id

    def of(self, request: deletion_requests.DeletionRequestOut) -> tuple[int, int | None]:
        """Return the number of steps done, and the total or None if unknown."""
        estimated = {model.model_id: model.steps for model in request.estimate.models} if request.estimate else {}
        done = total = 0
        for progress in request.models:
            run = self._runs.get(progress.run_id or "")
            if progress.status is RequestModelStatus.PENDING:
                total += estimated.get(progress.model_id, 0)
            elif run is not None:
                done, total = done + run.steps_done, total + run.steps_total
        return done, total if self.may_read and total else None
