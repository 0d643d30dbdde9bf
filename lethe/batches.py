"""Many requests at once: what is asked in each, how an iterable is cut into calls, and what was answered to each."""

import datetime
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypedDict

from lethe.contract.batches import MOST_AT_ONCE, BatchItemOut
from lethe.contract.problems import BatchRefused, InputInvalid

_REFUSED_AT = re.compile(r"requests\.([0-9]+)\.?(.*)", re.DOTALL)


class NewRequest(TypedDict, total=False):
    """One request of many, in the words of `client.deletion_requests.create`. Either `subject_id` or `subject_sha256`
    says whom it is about; the rest may be left out."""

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


def moved(items: Iterable[BatchItemOut], *, start: int) -> Iterator[BatchItemOut]:
    """The items of the batch that begins with request `start`, by their place among all requests."""
    for item in items:
        yield item.model_copy(update={"index": start + item.index})


def cut(requests: Iterable[NewRequest], *, size: int) -> Iterator[tuple[int, list[NewRequest]]]:
    """The batches of an iterable, each with the index of its first request. Raises `Malformed` for a size that the
    gateway does not take."""
    if not 1 <= size <= MOST_AT_ONCE:
        raise InputInvalid(f"Expected 1 <= batch_size={size} <= {MOST_AT_ONCE}.")
    rest = iter(requests)
    start = 0
    while batch := list(itertools.islice(rest, size)):
        yield start, batch
        start += len(batch)


def key_of(idempotency_key: str, *, start: int) -> str:
    """The `Idempotency-Key` of the batch that begins with request `start`: another one for each, always the same."""
    return hashlib.sha256(f"{idempotency_key}\n{start}".encode()).hexdigest()


def all_refused(problem: BatchRefused, *, size: int) -> Iterator[BatchItemOut]:
    """The outcome of each request of a batch of which none was accepted: the gateway says why, and no code for each."""
    why: dict[int, list[dict[str, str]]] = {}
    for fault in problem.errors:
        if (where := _REFUSED_AT.fullmatch(fault.path)) is not None:
            why.setdefault(int(where[1]), []).append({"path": where[2], "message": fault.message})
    for index in range(size):
        found = why.get(index, [])
        detail = "; ".join(f"{one['path']}: {one['message']}" if one["path"] else one["message"] for one in found)
        yield BatchItemOut(
            index=index,
            status=problem.status or 422,
            code=problem.code,
            detail=detail or problem.detail,
            errors=[one for one in found if one["path"]] or None,
        )
