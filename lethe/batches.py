"""Many requests at once: what is asked in each, how an iterable is cut into calls, and what was answered to each."""

import datetime
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from lethe.errors import InputInvalid, Malformed

MOST = 10_000
"""As many requests as the gateway takes in one call."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """What became of one request. `index`: which, from 0; `line`: in a CSV file. `status`: 202, or the HTTP status that
    the request alone would have had, and then `code` and `detail` say why."""

    index: int
    line: int | None = None
    status: int
    id: str | None = None
    external_id: str | None = field(default=None, repr=False)
    request_status: str | None = None
    code: str | None = None
    detail: str | None = None
    errors: tuple[dict[str, str], ...] | None = None

    @property
    def accepted(self) -> bool:
        return self.status == 202


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    accepted: int
    refused: int
    items: tuple[BatchItem, ...]


def body_of(request: NewRequest) -> dict[str, Any]:
    """As JSON has it."""
    body: dict[str, Any] = dict(request)
    if isinstance(at := body.get("submitted_at"), datetime.datetime):
        body["submitted_at"] = at.isoformat()
    return body


def cut(requests: Iterable[NewRequest], *, size: int) -> Iterator[tuple[int, list[NewRequest]]]:
    """The batches of an iterable, each with the index of its first request. Raises `Malformed` for a size that the
    gateway does not take."""
    if not 1 <= size <= MOST:
        raise InputInvalid(f"Expected 1 <= batch_size={size} <= {MOST}.")
    rest = iter(requests)
    start = 0
    while batch := list(itertools.islice(rest, size)):
        yield start, batch
        start += len(batch)


def key_of(idempotency_key: str, *, start: int) -> str:
    """The `Idempotency-Key` of the batch that begins with request `start`: another one for each, always the same."""
    return hashlib.sha256(f"{idempotency_key}\n{start}".encode()).hexdigest()


def all_refused(problem: Malformed, *, size: int) -> Iterator[BatchItem]:
    """What became of each request of a batch of which none was accepted: the gateway says why, and no code for each."""
    why: dict[int, list[dict[str, str]]] = {}
    for fault in problem.errors:
        if (where := _REFUSED_AT.fullmatch(fault.path)) is not None:
            why.setdefault(int(where[1]), []).append({"path": where[2], "message": fault.message})
    for index in range(size):
        found = why.get(index, [])
        detail = "; ".join(f"{one['path']}: {one['message']}" if one["path"] else one["message"] for one in found)
        yield BatchItem(
            index=index,
            status=problem.status or 422,
            code=problem.code,
            detail=detail or problem.detail,
            errors=tuple(one for one in found if one["path"]) or None,
        )
