"""`/deletion-requests:batch`, `/deletion-requests.csv`: many requests in, each with an answer of its own, and all out.

A batch is stored in groups, each in a transaction of its own that remembers its part of the answer: a call that was cut
off goes on where it was when it is repeated with its Idempotency-Key, and nobody else waits long for the write lock.
"""

import csv
import datetime
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Body as HttpBody
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.api import problems
from app.api.calls import Call
from app.api.deletion_requests import asked, checked_statement, names_of_assignees, sought_by, view_of
from app.api.gateway import serves
from app.audit import access_events
from app.db.tables import DeletionRequest
from app.deletion import search_repository
from app.deletion import service as deletion
from app.deletion.search_repository import Sought
from app.deletion.service import Asked, Submitted
from app.deletion.views import View
from app.protocols import drp, opendsr
from lethe.contract import batches as contract
from lethe.contract import spelling
from lethe.contract.batches import MOST_AT_ONCE, BatchIn, BatchItemOut, BatchOut, BatchQuery
from lethe.contract.deletion_requests import DeletionRequestIn, RequestFilter
from lethe.contract.problems import BatchRefused, FieldError, InputInvalid, Problem

router = APIRouter()

_GROUP = 500
_PAGE = 1000
_METADATA = "metadata."
_LIST_SEPARATOR = ";"
_TRUTH = {"true": True, "false": False}
_COLUMNS = (
    "subject_id",
    "subject_sha256",
    "aliases",
    "regulation",
    "ground",
    "external_id",
    "submitted_at",
    "callback_url",
    "refers_to",
    "identity_verified",
    "dataset_ids",
)

_FILTERS = [field.name for field in fields(Sought) if field.default is None]
"""Fields of `Sought` that a caller may give."""

_SOME_REFUSED: dict[int | str, dict[str, Any]] = {207: {"model": BatchOut, "description": "Some were refused."}}


@serves(router, contract.CREATE_BATCH, more=_SOME_REFUSED)
def create_batch(call: Call, body: BatchIn, once: Once, query: BatchQuery) -> JSONResponse:
    return _submit(call, once, [_Item(place=place, body=one) for place, one in enumerate(body.requests)], query.source)


@serves(router, contract.CREATE_FROM_CSV, more=_SOME_REFUSED)
def create_batch_from_csv(
    call: Call, body: Annotated[bytes, HttpBody(media_type="text/csv")], once: Once, query: BatchQuery
) -> JSONResponse:
    return _submit(call, once, _read(body), query.source)


@serves(router, contract.EXPORT)
def export_deletion_requests(call: Call, query: RequestFilter) -> StreamingResponse:
    sought = sought_by(call, query)
    with call.reading() as session:
        view = view_of(session, call)
    pages = _pages(call, view, sought)
    first = next(pages)  # what cannot be sought is refused before anything is answered
    with call.writing() as session:
        access_events.requests_exported(
            session, sought_by=[name for name in _FILTERS if getattr(sought, name) is not None]
        )
    columns = _EXPORTED if first.names is None else (*_EXPORTED, *_OF_ASSIGNEES)
    headers = {"Content-Disposition": 'attachment; filename="deletion-requests.csv"'}
    return StreamingResponse(
        _written(chain([first], pages), view, columns), media_type="text/csv; charset=utf-8", headers=headers
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One request of a batch, as it was sent, or what is wrong with its line; `line`: where, in a file."""

    place: int
    body: Any
    line: int | None = None


def _submit(call: Call, once: Once, items: Sequence[_Item], source: str | None) -> JSONResponse:
    if source in (opendsr.SOURCE, drp.SOURCE):
        raise InputInvalid("This source is a protocol's.", [FieldError("source", "expected another name")])
    found: list[BatchItemOut] = []
    for start in range(0, len(items), _GROUP):
        group = [(one, _asked(call, one, source)) for one in items[start : start + _GROUP]]
        found += _store(call, once, start, group, is_followed=start + _GROUP < len(items))
    found.sort(key=lambda item: item.index)
    accepted = sum(item.status == 202 for item in found)
    if accepted:
        call.installation.notifier.wake()
    if accepted == 0:
        raise BatchRefused("None of the requests was accepted.", [fault for item in found for fault in _faults(item)])
    out = BatchOut(accepted=accepted, refused=len(found) - accepted, items=found)
    return JSONResponse(out.model_dump(mode="json", exclude_none=True), 202 if out.refused == 0 else 207)


def _asked(call: Call, item: _Item, source: str | None) -> Asked | Problem:
    """The request that an item asks for, or the fault of its form."""
    if isinstance(item.body, InputInvalid):
        return item.body
    try:
        body = DeletionRequestIn.model_validate(item.body)
        statement = body.identity_statement and checked_statement(call, body, body.identity_statement)
        return asked(call, body, statement=statement or None, source=source)
    except ValidationError as error:
        expected = "The request does not have the form that the documentation asks for."
        return InputInvalid(expected, problems.faults(error, DeletionRequestIn))
    except Problem as error:
        return error


def _store(
    call: Call, once: Once, start: int, group: Sequence[tuple[_Item, Asked | Problem]], *, is_followed: bool
) -> list[BatchItemOut]:
    """Store a group and what was answered to each of it, or find what was answered when it was stored.

    What the first group is remembered by is what any other call with this Idempotency-Key would be.
    """
    name = once.name and (f"{once.name}.{start}" if start else once.name)
    earlier = replace(once, name=once.name and f"{once.name}.0")
    once = replace(once, name=name)
    ready = [one for _, one in group if isinstance(one, Asked)]
    if not ready and name is None:
        return [_refused(item, one) for item, one in group if isinstance(one, Problem)]
    with call.installation.database.writing() as session:
        before = idempotency.replay(session, once)
        if before is None and not start:  # the first release remembered the first group as it did the others
            before = idempotency.replay(session, earlier)
        if before is not None:
            items = [BatchItemOut.model_validate(item) for item in before.body["items"]]
        else:
            made = iter(deletion.submit_all(session, ready) if ready else ())
            view = view_of(session, call)
            items = [_answered(item, next(made) if isinstance(one, Asked) else one, view) for item, one in group]
            if (ready or (is_followed and not start)) and name is not None:
                body = {"items": [item.model_dump(mode="json", exclude_none=True) for item in items]}
                idempotency.remember_all(session, [(once, Answer(status=202, location=None, body=body))])
    return [  # what the caller wrote is not kept with the answer
        item.model_copy(update={"external_id": one.external_id}) if isinstance(one, Asked) and item.id else item
        for (_, one), item in zip(group, items, strict=True)
    ]


def _answered(item: _Item, made: Submitted | Problem, view: View) -> BatchItemOut:
    if isinstance(made, Problem):
        return _refused(item, made)
    request = made.request
    return BatchItemOut(
        index=item.place, line=item.line, status=202, id=request.id, request_status=view.status(request)
    )


def _refused(item: _Item, error: Problem) -> BatchItemOut:
    return BatchItemOut(
        index=item.place,
        line=item.line,
        status=problems.status_of(type(error)),
        code=error.code,
        detail=error.detail,
        errors=[{"path": fault.path, "message": fault.message} for fault in error.errors] or None,
    )


def _faults(item: BatchItemOut) -> list[FieldError]:
    where = f"requests.{item.index}" if item.line is None else f"line {item.line}"
    faults = item.errors or [{"path": "", "message": item.detail or ""}]
    return [FieldError(f"{where}.{fault['path']}".rstrip("."), fault["message"]) for fault in faults]


def _read(content: bytes) -> list[_Item]:
    """Raises `InputInvalid` for what is no CSV of requests; what is wrong with one line is said of that line."""
    try:
        lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        columns = lines.fieldnames or []
        wrong = [name for name in columns if name not in _COLUMNS and not name.startswith(_METADATA)]
        if not columns or wrong or len(set(columns)) < len(columns):
            expected = f"expected a header with columns of {', '.join(_COLUMNS)}, {_METADATA}<name>, each once"
            meant = next(filter(None, (spelling.nearest(name, _COLUMNS) for name in wrong)), None)
            expected += f"; did you mean {meant}?" if meant else ""
            raise InputInvalid("The file does not say what its columns are.", [FieldError("line 1", expected)])
        items = []
        for place, row in enumerate(lines):
            if place == MOST_AT_ONCE:
                expected = f"expected at most {MOST_AT_ONCE} requests"
                raise InputInvalid("Send the rest in a batch of its own.", [FieldError("body", expected)])
            items.append(_Item(place=place, line=lines.line_num, body=_of_row(row)))
    except UnicodeDecodeError:
        raise InputInvalid("The file is not UTF-8.", [FieldError("body", "expected UTF-8")]) from None
    except csv.Error:
        fault = FieldError(f"line {lines.line_num + 1}", "expected CSV")
        raise InputInvalid("The file cannot be read as CSV.", [fault]) from None
    if not items:
        raise InputInvalid("There is no request in the file.", [FieldError("body", "expected a line per request")])
    return items


def _of_row(row: dict[str | Any, str | Any]) -> dict[str, Any] | InputInvalid:
    """Empty cells are not there."""
    if None in row or None in row.values():
        return InputInvalid("The line has more or fewer cells than the header.")
    body: dict[str, Any] = {name: cell for name, cell in row.items() if cell and not name.startswith(_METADATA)}
    for name in ("dataset_ids", "aliases"):
        if name in body:
            body[name] = body[name].split(_LIST_SEPARATOR)
    if "identity_verified" in body:
        body["identity_verified"] = _TRUTH.get(body["identity_verified"].lower(), body["identity_verified"])
    metadata = {name.removeprefix(_METADATA): cell for name, cell in row.items() if cell and name.startswith(_METADATA)}
    return body | ({"metadata": metadata} if metadata else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Requests to be exported. `names`: of those whom they are assigned to; None: the caller may not know them."""

    requests: list[DeletionRequest]
    names: Mapping[str, str] | None


def _pages(call: Call, view: View, sought: Sought) -> Iterator[_Page]:
    """Each page in a session of its own: a reader that is slow holds up nobody."""
    cursor = None
    while True:
        with call.reading() as session:
            page = search_repository.requests(session, sought, view=view, limit=_PAGE, cursor=cursor)
            names = names_of_assignees(session, call, page.items)
        yield _Page(requests=page.items, names=names)
        if (cursor := page.next_cursor) is None:
            return


_EXPORTED = (
    "id",
    "status",
    "outcome",
    "subject_ref",
    "regulation",
    "ground",
    "external_id",
    "source",
    "refers_to",
    "submitted_at",
    "due_at",
    "extended_due_at",
    "deadline",
    "paused_at",
    "rejection_ground",
    "created_at",
    "completed_at",
)
_OF_ASSIGNEES = ("assignee", "assignee_name")
"""Columns for those alone who may know whose case a request is."""


def _written(pages: Iterable[_Page], view: View, columns: Sequence[str]) -> Iterator[str]:
    yield ",".join(columns) + "\r\n"
    for page in pages:
        text = io.StringIO()
        csv.writer(text).writerows([_row(request, view, columns, page.names or {}) for request in page.requests])
        yield text.getvalue()


def _row(request: DeletionRequest, view: View, columns: Sequence[str], names: Mapping[str, str]) -> list[str | None]:
    shown = {
        "status": view.status(request),
        "completed_at": view.completed_at(request),
        "outcome": None if view.discreet else request.outcome,
        "external_id": request.particulars.external_id,
        "assignee_name": names.get(request.assignee) if request.assignee else None,
    }
    values = (shown[name] if name in shown else getattr(request, name) for name in columns)
    return [one.isoformat() if isinstance(one, datetime.datetime) else one for one in values]
