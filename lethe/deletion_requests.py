"""`client.deletion_requests`: people who ask to be forgotten."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Literal

import anyio
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from lethe import batches
from lethe.arguments import Sent, checked
from lethe.batches import NewRequest
from lethe.contract import (
    assignees,
    decisions,
    deletion_requests,
    replies,
    request_attachments,
    request_notes,
    request_previews,
    runs,
)
from lethe.contract import batches as many
from lethe.contract.batches import BatchItemOut, BatchOut
from lethe.contract.certificates import CertificateOut
from lethe.contract.deletion_requests import (
    CreateDeletionRequestQuery,
    DeletionRequestIn,
    DeletionRequestOut,
)
from lethe.contract.problems import BatchRefused, NotAllowed
from lethe.contract.runs import RunOut
from lethe.contract.sets import RequestModelStatus, RequestStatus
from lethe.http import AsyncHttp, Http, Options
from lethe.methods import H, Keyed, Resource, call, call_one, makes, pages, saved, upload_one
from lethe.waiting import Progress, Watch

ENDED = frozenset({RequestStatus.COMPLETED, RequestStatus.CANCELLED, RequestStatus.REJECTED})
Told = Callable[[int, int], object]
"""Told how many requests were accepted and refused so far."""


class _NewRequest(DeletionRequestIn, CreateDeletionRequestQuery, Keyed):
    pass


class _NewBatch(many.BatchIn, many.BatchQuery, Keyed):
    pass


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class NewAttachment(Sent):
    """A .pdf, .png, .jpeg, .jpg, .txt or .eml file."""


class _Identity(deletion_requests.PauseIn):
    reason: Literal["identity"] = "identity"


class _DeletionRequests(Resource[H]):
    create = call(deletion_requests.CREATE, _NewRequest)
    create_batch = call(many.CREATE_BATCH, _NewBatch)
    list = pages(deletion_requests.LIST)
    count = call(decisions.COUNT)
    summary = call(decisions.SUMMARY)
    decide = call(decisions.DECIDE)
    get = call(deletion_requests.GET)
    events = pages(deletion_requests.EVENTS)
    preview = call(request_previews.PREVIEW)
    cancel = call(deletion_requests.CANCEL)
    approve = call(deletion_requests.APPROVE)
    reject = call(deletion_requests.REJECT)
    extend = call(deletion_requests.EXTEND)
    pause = call_one(deletion_requests.PAUSE, _Identity)
    resume = call(deletion_requests.RESUME)
    assign = call(assignees.ASSIGN)
    assignees = pages(assignees.LIST)
    add_note = call(request_notes.ADD)
    notes = pages(request_notes.LIST)
    attach = upload_one(request_attachments.ADD, NewAttachment)
    attachments = pages(request_attachments.LIST)
    attachment = call(request_attachments.CONTENT)
    delete_attachment = call(request_attachments.DELETE)
    reply = call(replies.REPLY)
    proof = call(deletion_requests.CERTIFICATES)
    export = saved(many.EXPORT)


class DeletionRequests(_DeletionRequests[Http]):
    def create_many(
        self,
        requests: Iterable[NewRequest],
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        batch_size: int = 1000,
        progress: Told | None = None,
    ) -> Iterator[BatchItemOut]:
        """The same as `create_batch` for any number, in batches, each sent when its first result is asked for; a result
        for each request, in their order.

        With your own `idempotency_key`, an interrupted caller makes the same call again: what was asked before is
        answered as it was, and nothing is made twice. Raises a `Problem` for what concerns more than one request.
        """
        accepted = refused = 0
        for start, given, options in _cut(requests, source, idempotency_key, batch_size):
            try:
                found: Iterable[BatchItemOut] = self._http.call(many.CREATE_BATCH, given=given, options=options).items
            except BatchRefused as problem:
                found = batches.all_refused(problem, size=len(given.requests))
            for item in batches.moved(found, start=start):
                accepted, refused = accepted + item.accepted, refused + (not item.accepted)
                yield item
            if progress is not None:
                progress(accepted, refused)

    @makes(many.CREATE_FROM_CSV)
    def create_from_csv(
        self, content: bytes, *, source: str | None = None, idempotency_key: str | None = None
    ) -> BatchOut:
        """The same as `create_batch`, from CSV in UTF-8 whose header has the fields of a request."""
        given, options = _csv(content, source, idempotency_key)
        return self._http.call(many.CREATE_FROM_CSV, given=given, options=options)

    def certificates(self, request_id: str) -> list[CertificateOut]:
        """The certificates of every model that has forgotten so far."""
        return self.proof(request_id).certificates

    def wait(
        self, request_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> DeletionRequestOut:
        """The request as soon as it has ended: completed, cancelled or rejected. Raises `WaitTimedOut`."""
        watch = Watch(what=f"deletion request {request_id}", timeout_seconds=timeout_seconds)
        steps = _Steps()
        while True:
            request = self._http.call(deletion_requests.GET, request_id, options=Options(within=watch.left))
            for run_id in steps.unknown(request) if progress is not None else ():
                try:
                    steps.add(self._http.call(runs.GET, run_id))
                except NotAllowed:
                    steps.may_read = False
            if progress is not None:
                progress(request.status, *steps.of(request))
            if request.status in ENDED:
                return request
            time.sleep(watch.pause(status=request.status))


class AsyncDeletionRequests(_DeletionRequests[AsyncHttp]):
    async def create_many(
        self,
        requests: Iterable[NewRequest],
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        batch_size: int = 1000,
        progress: Told | None = None,
    ) -> AsyncIterator[BatchItemOut]:
        """As `DeletionRequests.create_many`."""
        accepted = refused = 0
        for start, given, options in _cut(requests, source, idempotency_key, batch_size):
            try:
                answer = await self._http.call(many.CREATE_BATCH, given=given, options=options)
                found: Iterable[BatchItemOut] = answer.items
            except BatchRefused as problem:
                found = batches.all_refused(problem, size=len(given.requests))
            for item in batches.moved(found, start=start):
                accepted, refused = accepted + item.accepted, refused + (not item.accepted)
                yield item
            if progress is not None:
                progress(accepted, refused)

    @makes(many.CREATE_FROM_CSV)
    async def create_from_csv(
        self, content: bytes, *, source: str | None = None, idempotency_key: str | None = None
    ) -> BatchOut:
        """As `DeletionRequests.create_from_csv`."""
        given, options = _csv(content, source, idempotency_key)
        return await self._http.call(many.CREATE_FROM_CSV, given=given, options=options)

    async def certificates(self, request_id: str) -> list[CertificateOut]:
        """The certificates of every model that has forgotten so far."""
        return (await self.proof(request_id)).certificates

    async def wait(
        self, request_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> DeletionRequestOut:
        """As `DeletionRequests.wait`."""
        watch = Watch(what=f"deletion request {request_id}", timeout_seconds=timeout_seconds)
        steps = _Steps()
        while True:
            request = await self._http.call(deletion_requests.GET, request_id, options=Options(within=watch.left))
            for run_id in steps.unknown(request) if progress is not None else ():
                try:
                    steps.add(await self._http.call(runs.GET, run_id))
                except NotAllowed:
                    steps.may_read = False
            if progress is not None:
                progress(request.status, *steps.of(request))
            if request.status in ENDED:
                return request
            await anyio.sleep(watch.pause(status=request.status))


def _cut(
    requests: Iterable[NewRequest], source: str | None, idempotency_key: str | None, size: int
) -> Iterator[tuple[int, _NewBatch, Options]]:
    key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
    for start, batch in batches.cut(requests, size=size):
        options = Options(idempotency_key=batches.key_of(key, start=start))
        yield start, checked(_NewBatch, {"requests": batch, "source": source}), options


def _csv(content: bytes, source: str | None, idempotency_key: str | None) -> tuple[many.BatchQuery, Options]:
    options = Options(
        idempotency_key=idempotency_key, headers={"Content-Type": "text/csv"}, content={"content": content}
    )
    return checked(many.BatchQuery, {"source": source}), options


class _Steps:
    """The steps of a request: of its runs, and those estimated where none has begun. A key that may not read runs knows
    none."""

    def __init__(self) -> None:
        self._runs: dict[str, RunOut] = {}
        self.may_read = True

    def add(self, run: RunOut) -> None:
        self._runs[run.id] = run

    def unknown(self, request: DeletionRequestOut) -> Iterator[str]:
        """The runs to ask for: those that had not ended when they were asked for last."""
        for owed in request.models:
            known = self._runs.get(owed.run_id or "")
            if known is not None and known.finished_at:
                continue
            if self.may_read and owed.run_id and owed.status is not RequestModelStatus.PENDING:
                yield owed.run_id

    def of(self, request: DeletionRequestOut) -> tuple[int, int | None]:
        """Done, and in all (None: unknown)."""
        estimated = {one.model_id: one.steps for one in request.estimate.models} if request.estimate else {}
        done = total = 0
        for owed in request.models:
            run = self._runs.get(owed.run_id or "")
            if owed.status is RequestModelStatus.PENDING:
                total += estimated.get(owed.model_id, 0)
            elif run is not None:
                done, total = done + run.steps_done, total + run.steps_total
        return done, total if self.may_read and total else None
