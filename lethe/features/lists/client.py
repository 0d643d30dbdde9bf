"""`client.deletion_requests` calls for many requests at once."""

import datetime
import hashlib
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import MethodType
from typing import Any, Concatenate, Generic, TypedDict, overload

from lethe.client.http import AsyncHttp, Http, Options, drive_each
from lethe.client.methods import H, Keyed, P, Resource, T, call, checked, composed, either, makes, saved
from lethe.contract.problems import InputInvalid
from lethe.features.lists import contract

_REFUSED_AT = re.compile(r"requests\.([0-9]+)\.?(.*)", re.DOTALL)
BatchProgress = Callable[[int, int], object]
"""Callback that receives the number of requests accepted and the number refused so far."""


class NewRequest(TypedDict, total=False):
    """Fields of one request in a batch, as in `client.deletion_requests.create`. Either `subject_id` or
    `subject_sha256` names the person; all other fields are optional."""

    subject_id: str
    subject_sha256: str
    kind: str
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


class composed_list(Generic[P, T]):
    """Decorator that makes an async generator over API calls a method of both the sync and the async client."""

    def __init__(self, function: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        vars(self).update(vars(function))

    @overload
    def __get__(self, resource: Resource[Http], owner: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncHttp], owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, resource: Any, owner: Any) -> Any:
        return self if resource is None else either(resource, MethodType(self._function, resource), drive_each)


class _NewBatch(contract.BatchIn, contract.BatchQuery, Keyed):
    pass


class RequestLists(Resource[H]):
    """Methods of `client.deletion_requests` that handle many requests at once."""

    create_batch = call(contract.CREATE_BATCH, _NewBatch)
    count = call(contract.COUNT)
    decide = call(contract.DECIDE)
    export = saved(contract.EXPORT)

    @composed_list
    async def create_many(
        self,
        requests: Iterable[NewRequest],
        *,
        source: str | None = None,
        idempotency_key: str | None = None,
        batch_size: int = 1000,
        progress: BatchProgress | None = None,
    ) -> AsyncIterator[contract.BatchItemOut]:
        """Create any number of requests in batches, like `create_batch`, and yield a result for each request, in order.
        A batch is sent when its first result is consumed.

        If you pass an `idempotency_key`, you can repeat an interrupted call: earlier requests get the same response and
        are not created twice. Raises a `Problem` for errors that affect more than one request.
        """
        accepted = refused = 0
        for start, batch, options in _batches(requests, source, idempotency_key, batch_size):
            try:
                answer = await self._calls.call(contract.CREATE_BATCH, arguments=batch, options=options)
                items: Iterable[contract.BatchItemOut] = answer.items
            except contract.BatchRefused as problem:
                items = _all_refused(problem, size=len(batch.requests))
            for item in items:
                accepted, refused = accepted + item.accepted, refused + (not item.accepted)
                yield item.model_copy(update={"index": start + item.index})
            if progress is not None:
                progress(accepted, refused)

    @composed
    @makes(contract.CREATE_FROM_CSV)
    async def create_from_csv(
        self, content: bytes, *, source: str | None = None, idempotency_key: str | None = None
    ) -> contract.BatchOut:
        """Create a batch of requests, like `create_batch`, from UTF-8 CSV whose header names request fields."""
        query = checked(contract.BatchQuery, {"source": source})
        headers = {"Content-Type": "text/csv"}
        options = Options(idempotency_key=idempotency_key, headers=headers, content={"content": content})
        return await self._calls.call(contract.CREATE_FROM_CSV, arguments=query, options=options)


def cut(requests: Iterable[NewRequest], *, size: int) -> Iterator[tuple[int, list[NewRequest]]]:
    """Split an iterable into batches and yield each with the index of its first request. Raises `InputInvalid` for a
    size that the gateway would refuse."""
    if not 1 <= size <= contract.MAX_BATCH_REQUESTS:
        raise InputInvalid(f"Expected 1 <= batch_size={size} <= {contract.MAX_BATCH_REQUESTS}.")
    rest = iter(requests)
    start = 0
    while batch := list(itertools.islice(rest, size)):
        yield start, batch
        start += len(batch)


def _batches(
    requests: Iterable[NewRequest], source: str | None, idempotency_key: str | None, size: int
) -> Iterator[tuple[int, _NewBatch, Options]]:
    """Yield each batch with the index of its first request and its own `Idempotency-Key`, which stays the same if the
    call is repeated with the same `idempotency_key`."""
    key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
    for start, batch in cut(requests, size=size):
        options = Options(idempotency_key=hashlib.sha256(f"{key}\n{start}".encode()).hexdigest())
        yield start, checked(_NewBatch, {"requests": batch, "source": source}), options


def _all_refused(problem: contract.BatchRefused, *, size: int) -> Iterator[contract.BatchItemOut]:
    """Yield one rejected item per request of a batch that was refused as a whole, with the reasons in `problem`."""
    faults: dict[int, list[dict[str, str]]] = {}
    for fault in problem.errors:
        if (where := _REFUSED_AT.fullmatch(fault.path)) is not None:
            faults.setdefault(int(where[1]), []).append({"path": where[2], "message": fault.message})
    for index in range(size):
        own = faults.get(index, [])
        detail = "; ".join(f"{part['path']}: {part['message']}" if part["path"] else part["message"] for part in own)
        yield contract.BatchItemOut(
            index=index,
            status=problem.status or 422,
            code=problem.code,
            detail=detail or problem.detail,
            errors=[part for part in own if part["path"]] or None,
        )
