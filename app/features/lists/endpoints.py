"""Endpoints for handling many deletion requests at once: batches, the export, counts, and bulk decisions.

A batch is stored in groups, one transaction each. The transaction also stores the group's part of the response under
the Idempotency-Key, so a repeated call continues after the last stored group. Other writers wait for at most one group.
"""

import csv
import datetime
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Body as HttpBody
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Once, StoredResponse
from app.api import deletion_requests, gateway, problems
from app.api.calls import Call
from app.audit import service as audit
from app.db.tables import DeletionRequest
from app.deletion import search_repository, service as deletion, views
from app.deletion.service import RequestDraft, Submitted
from lethe import sockets
from lethe.contract.deletion_requests import DeletionRequestIn, RequestFilter
from lethe.contract.fields import nearest
from lethe.contract.problems import FieldError, InputInvalid, Problem
from lethe.contract.sets import Decision, RequestStatus
from lethe.encoding.columns import AS_CSV, check_csv
from lethe.features.lists import contract

router = APIRouter()

_GROUP = 500
_PAGE = 1000
_LINE_END = b"\n"
_METADATA = "metadata."
_LIST_SEPARATOR = ";"
_TRUTH = {"true": True, "false": False}

_FILTERS = [field.name for field in fields(search_repository.Sought) if field.default is None]
"""Names of the filters of `Sought`, for the audit log."""

_SOME_REFUSED: dict[int | str, dict[str, Any]] = {
    207: {"model": contract.BatchOut, "description": "Some items were refused."}
}


@gateway.serves(router, contract.CREATE_BATCH, more=_SOME_REFUSED)
def create_batch(call: Call, body: contract.BatchIn, once: Once, query: contract.BatchQuery) -> JSONResponse:
    items = [_Item(place=place, body=request) for place, request in enumerate(body.requests)]
    return _submit(call, once, items, query.source)


@gateway.serves(router, contract.CREATE_FROM_CSV, more=_SOME_REFUSED)
def create_batch_from_csv(
    call: Call, body: Annotated[bytes, HttpBody(media_type="text/csv")], once: Once, query: contract.BatchQuery
) -> JSONResponse:
    return _submit(call, once, _read(body), query.source)


@gateway.serves(router, contract.EXPORT)
def export_deletion_requests(call: Call, query: RequestFilter) -> StreamingResponse:
    search = deletion_requests.sought_by(call, query)
    with call.reading() as session:
        view = deletion_requests.view_of(session, call)
    pages = _pages(call, view, search)
    # Invalid filters are refused before the response begins.
    first = next(pages)
    with call.writing() as session:
        sought_by_names = sorted(name for name in _FILTERS if getattr(search, name) is not None)
        audit.record(session, "deletion_requests.exported", call.caller.tenant_id, sought_by=sought_by_names)
    columns = _EXPORTED if first[1] is None else (*_EXPORTED, *_OF_ASSIGNEES)
    headers = {"Content-Disposition": 'attachment; filename="deletion-requests.csv"'}
    return StreamingResponse(
        _written(chain([first], pages), view, columns), media_type="text/csv; charset=utf-8", headers=headers
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """Batch item: the body of one request as sent, or the error in its line. `line` is None unless the batch is CSV."""

    place: int
    body: Any
    line: int | None = None


def _submit(call: Call, once: Once, items: Sequence[_Item], source: str | None) -> JSONResponse:
    if source in sockets.plugs("app.features", "hooks", "RESERVED_SOURCES"):
        raise InputInvalid("This source is reserved for a protocol.", [FieldError("source", "expected another name")])
    answers: list[contract.BatchItemOut] = []
    for start in range(0, len(items), _GROUP):
        group = [(item, _asked(call, item, source)) for item in items[start : start + _GROUP]]
        answers += _store(call, once, start, group, is_followed=start + _GROUP < len(items))
    answers.sort(key=lambda item: item.index)
    accepted = sum(item.status == 202 for item in answers)
    if accepted:
        call.installation.notifier.wake()
    if accepted == 0:
        raise contract.BatchRefused(
            "None of the requests was accepted.", [fault for item in answers for fault in _faults(item)]
        )
    out = contract.BatchOut(accepted=accepted, refused=len(answers) - accepted, items=answers)
    return JSONResponse(out.model_dump(mode="json", exclude_none=True), 202 if out.refused == 0 else 207)


def _asked(call: Call, item: _Item, source: str | None) -> RequestDraft | Problem:
    """Return the request draft for an item, or the problem if the item is refused."""
    if isinstance(item.body, InputInvalid):
        return item.body
    try:
        body = DeletionRequestIn.model_validate(item.body)
        statement = body.identity_statement and deletion_requests.checked_statement(call, body, body.identity_statement)
        return deletion_requests.asked(call, body, statement=statement or None, source=source)
    except ValidationError as error:
        expected = "The request does not have the form that the documentation asks for."
        return InputInvalid(expected, problems.faults(error, DeletionRequestIn))
    except Problem as error:
        return error


def _store(
    call: Call, once: Once, start: int, group: Sequence[tuple[_Item, RequestDraft | Problem]], *, is_followed: bool
) -> list[contract.BatchItemOut]:
    """Store a group of items with its results, and return the results; if it is already stored, return the stored ones.

    The first group is stored under the Idempotency-Key itself, so that a different call with this key is refused.
    """
    name = once.name and (f"{once.name}.{start}" if start else once.name)
    once = replace(once, name=name)
    ready = [draft for _, draft in group if isinstance(draft, RequestDraft)]
    if not ready and name is None:
        return [_refused(item, draft) for item, draft in group if isinstance(draft, Problem)]
    call.installation.database.require_served()
    with call.installation.database.writing(tenant_id=call.caller.tenant_id) as session:
        before = idempotency.replay(session, once)
        if before is not None:
            items = [contract.BatchItemOut.model_validate(item) for item in before.body["items"]]
        else:
            outcomes = iter(deletion.submit_all(session, ready) if ready else ())
            view = deletion_requests.view_of(session, call)
            items = [
                _answered(item, next(outcomes) if isinstance(draft, RequestDraft) else draft, view)
                for item, draft in group
            ]
            if (ready or (is_followed and not start)) and name is not None:
                body = {"items": [item.model_dump(mode="json", exclude_none=True) for item in items]}
                idempotency.remember_all(session, [(once, StoredResponse(status=202, location=None, body=body))])
    # Stored responses do not contain the caller's input.
    return [
        item.model_copy(update={"external_id": draft.external_id})
        if isinstance(draft, RequestDraft) and item.id
        else item
        for (_, draft), item in zip(group, items, strict=True)
    ]


def _answered(item: _Item, outcome: Submitted | Problem, view: views.View) -> contract.BatchItemOut:
    if isinstance(outcome, Problem):
        return _refused(item, outcome)
    request = outcome.request
    return contract.BatchItemOut(
        index=item.place, line=item.line, status=202, id=request.id, request_status=view.status(request)
    )


def _refused(item: _Item, error: Problem) -> contract.BatchItemOut:
    return contract.BatchItemOut(
        index=item.place,
        line=item.line,
        status=problems.status_of(type(error)),
        code=error.code,
        detail=error.detail,
        errors=[{"path": fault.path, "message": fault.message} for fault in error.errors] or None,
    )


def _faults(item: contract.BatchItemOut) -> list[FieldError]:
    where = f"requests.{item.index}" if item.line is None else f"line {item.line}"
    faults = item.errors or [{"path": "", "message": item.detail or ""}]
    return [FieldError(f"{where}.{fault['path']}".rstrip("."), fault["message"]) for fault in faults]


def _read(content: bytes) -> list[_Item]:
    """Parse a CSV file into items; a faulty line yields an item with its error. Other errors raise `InputInvalid`."""
    check_csv(content, "body")
    try:
        lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        columns = lines.fieldnames or []
        wrong = [name for name in columns if name not in contract.CSV_FIELDS and not name.startswith(_METADATA)]
        if not columns or wrong or len(set(columns)) < len(columns):
            expected = (
                f"expected a header with columns of {', '.join(contract.CSV_FIELDS)}, {_METADATA}<name>, each once"
            )
            meant = next(filter(None, (nearest(name, contract.CSV_FIELDS) for name in wrong)), None)
            expected += f"; did you mean {meant}?" if meant else ""
            raise InputInvalid("The file does not say what its columns are.", [FieldError("line 1", expected)])
        items = []
        for place, row in enumerate(lines):
            if place == contract.MAX_BATCH_REQUESTS:
                expected = f"expected at most {contract.MAX_BATCH_REQUESTS} requests"
                raise InputInvalid("Send the rest in a batch of its own.", [FieldError("body", expected)])
            items.append(_Item(place=place, line=lines.line_num, body=_of_row(row)))
    except UnicodeDecodeError as error:
        num_before = content.count(_LINE_END, 0, error.start)
        fault = FieldError(f"line {num_before + 1}", "expected UTF-8")
        raise InputInvalid("The file is not UTF-8; {advice}.", [fault], advice=AS_CSV) from None
    except csv.Error:
        fault = FieldError(f"line {lines.line_num + 1}", "expected CSV")
        raise InputInvalid("The file cannot be read as CSV.", [fault]) from None
    if not items:
        raise InputInvalid("There is no request in the file.", [FieldError("body", "expected a line per request")])
    return items


def _of_row(row: dict[str | Any, str | Any]) -> dict[str, Any] | InputInvalid:
    """Return the request body that a CSV line describes, leaving out empty cells."""
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


_Page = tuple[list[DeletionRequest], Mapping[str, str] | None]
"""Requests in the export, and the names of their assignees, or None if the caller may not see assignees."""


def _pages(call: Call, view: views.View, search: search_repository.Sought) -> Iterator[_Page]:
    """Yield the export's pages, each from its own session, so that slow readers do not keep a transaction open."""
    cursor = None
    while True:
        with call.reading() as session:
            page = search_repository.requests(session, search, view=view, limit=_PAGE, cursor=cursor)
            names = deletion_requests.names_of_assignees(session, call, page.items)
        yield page.items, names
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
"""Columns for callers with the scope `requests:review`."""


def _written(pages: Iterable[_Page], view: views.View, columns: Sequence[str]) -> Iterator[str]:
    yield ",".join(columns) + "\r\n"
    for requests, names in pages:
        text = io.StringIO()
        csv.writer(text).writerows([_row(request, view, columns, names or {}) for request in requests])
        yield text.getvalue()


def _row(
    request: DeletionRequest, view: views.View, columns: Sequence[str], names: Mapping[str, str]
) -> list[str | None]:
    computed = {
        "status": view.status(request),
        "completed_at": view.completed_at(request),
        "outcome": None if view.discreet else request.outcome,
        "external_id": "(damaged)" if request.particulars.is_damaged else request.particulars.external_id,
        "assignee_name": names.get(request.assignee) if request.assignee else None,
    }
    values = (computed[name] if name in computed else getattr(request, name) for name in columns)
    return [value.isoformat() if isinstance(value, datetime.datetime) else value for value in values]


@gateway.serves(router, contract.COUNT)
def count_deletion_requests(call: Call, query: RequestFilter) -> contract.CountOut:
    search = deletion_requests.audited_search(call, query)
    with call.reading() as session:
        count = search_repository.count(
            session, search, view=deletion_requests.view_of(session, call), at_most=contract.COUNTED
        )
    return contract.CountOut(count=count)


@gateway.serves(router, contract.DECIDE)
def decide_deletion_requests(call: Call, body: contract.DecisionsIn) -> contract.DecisionsOut:
    _check(body)
    filters = body.model_dump(include={field.name for field in fields(search_repository.Sought)})
    search = search_repository.Sought(**filters, horizon=deletion_requests.horizon_of(call))
    decided = refused = 0
    with call.writing() as session:
        view = deletion_requests.view_of(session, call)
        page = search_repository.requests(session, search, view=view, limit=body.limit, cursor=body.cursor)
        for request in page.items:
            try:
                with session.begin_nested():
                    _decide(session, call, request, body)
                decided += 1
            except Problem:
                refused += 1
    call.installation.notifier.wake()
    return contract.DecisionsOut(decided=decided, refused=refused, next_cursor=page.next_cursor)


def _check(body: contract.DecisionsIn) -> None:
    """Raise `InputInvalid` if `rejection` is missing or superfluous, or if requests to approve are not in review."""
    if (body.decision is Decision.REJECT) != (body.rejection is not None):
        expected = "expected with reject, and with nothing else"
        raise InputInvalid("A rejection needs a legal basis and an explanation.", [FieldError("rejection", expected)])
    if body.decision is Decision.APPROVE and body.status is not RequestStatus.IN_REVIEW:
        raise InputInvalid("Only requests in review can be approved.", [FieldError("status", "expected in_review")])


def _decide(session: Session, call: Call, request: DeletionRequest, body: contract.DecisionsIn) -> None:
    if body.rejection is None:
        deletion.approve(session, request, policy=call.caller.policy)
    else:
        rejection = body.rejection
        deletion.reject(session, request, ground=rejection.ground, explanation=rejection.explanation)


MOUNTS = (gateway.Mount(router=router),)
