"""Endpoints for California's delete list."""

import base64
import tempfile
from collections.abc import Iterable, Iterator

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from app.api import calls, gateway
from app.features.drop import service
from lethe.contract.problems import FieldError, InputInvalid
from lethe.features.drop import contract, standard
from lethe.features.identities.contract import IdentifierIn

router = APIRouter()
_FILES = 100
_IN_MEMORY_BYTES = 2**20
_PIECE_BYTES = 2**16
_OF_KIND = {
    standard.DropList.EMAIL: standard.email,
    standard.DropList.PHONE: standard.phone,
    standard.DropList.MAID: standard.maid,
    standard.DropList.CTVID: standard.ctvid,
}


def _refs(call: calls.Call, drop_list: standard.DropList, hashes: Iterable[str]) -> list[str]:
    """Return a keyed hash, specific to the tenant and the DROP list, of each hash (base64)."""
    parts = b"drop", call.caller.tenant_id.encode(), drop_list.encode()
    keys = call.installation.keys
    return ["drop_" + keys.fingerprint(*parts, base64.b64decode(text))[:40] for text in hashes]


@gateway.serves(router, contract.LOAD)
def load_drop_lines(call: calls.Call, body: contract.LinesIn) -> contract.LinesLoadedOut:
    drop_list = contract.list_of(body.file)
    lines: dict[str, str] = {}
    for line in body.lines:
        # The contract has the list either in the name of the file or in the line.
        [ref] = _refs(call, standard.DropList(drop_list or line.list_type or ""), [line.hash])
        if lines.setdefault(line.id, ref) != ref:
            raise InputInvalid("Nothing was loaded: a DROP ID means one line.", [FieldError(line.id, "is repeated")])
    with call.writing() as session:
        if drop_list is None:
            loaded, irrevocable = len(lines), service.remove(session, body.file, lines)
        else:
            service.load(session, body.file, lines, num_lines=body.num_lines)
            loaded, irrevocable = service.num_loaded(session, body.file), 0
    # The number would reveal who is held, because only a line about a person who is held leads to a request.
    shown = None if call.caller.discreet else irrevocable
    return contract.LinesLoadedOut(file=body.file, num_loaded=loaded, num_lines=body.num_lines, num_irrevocable=shown)


@gateway.serves(router, contract.PEOPLE)
def load_drop_people(call: calls.Call, body: contract.PeopleIn) -> contract.PeopleOut:
    of_kind = {kind: call.references(kind) for kind in sorted({person.kind for person in body.people})}
    stated = []
    for place, person in enumerate(body.people):
        try:
            [subject_ref] = of_kind[person.kind]([person.id if person.id is not None else f"sha256:{person.sha256}"])
        except InputInvalid as fault:
            expected = fault.errors[0].message if fault.errors else fault.detail
            raise InputInvalid("Nothing was loaded.", [FieldError(f"people.{place}.id", expected)]) from None
        for drop_list, hashes in person.hashes.items():
            stated.append((subject_ref, person.kind, drop_list, _refs(call, drop_list, hashes)))
    with call.writing() as session:
        service.state_hashes(session, stated)
        service.note_people(session, len(body.people))
        call.require_room(session=session)
    return contract.PeopleOut(num_people=len(body.people))


def note_identifiers(session: Session, call: calls.Call, loaded: Iterable[tuple[str, IdentifierIn]]) -> None:
    """Store the DROP hashes of the identifiers loaded as plain text. `loaded` holds (pseudonym, identifier) pairs."""
    service.state_hashes(
        session,
        [
            (ref, identifier.kind, drop_list, _refs(call, drop_list, map(standard.hash_of, forms)))
            for ref, identifier in loaded
            if identifier.id is not None
            for drop_list in service.LISTS_OF_KIND.get(identifier.kind, ())
            for forms in [_OF_KIND[drop_list](identifier.id)]
        ],
    )


@gateway.serves(router, contract.GET)
def get_drop(call: calls.Call) -> contract.DropOut:
    with call.reading() as session:
        files = service.files(session, limit=_FILES)
        by_state = service.counts(session, [file.name for file in files])
        out = []
        for file in files:
            states = by_state[file.name]
            num_waiting = (
                states.total() - states[service.LineState.REMOVED] - sum(states[state] for state in service.ANSWERED)
            )
            waiting = (
                service.lines_of(session, file.name, waiting=True, limit=contract.MAX_LISTED) if num_waiting else ()
            )
            out.append(
                contract.FileOut(
                    file=file.name,
                    list_type=standard.DropList(contract.list_of(file.name) or ""),
                    num_lines=file.num_lines,
                    num_loaded=states.total(),
                    num_removed=states[service.LineState.REMOVED],
                    num_deleted=states[service.LineState.DELETED],
                    num_exempted=states[service.LineState.EXEMPTED],
                    num_opted_out=states[service.LineState.OPTED_OUT],
                    num_not_found=states[service.LineState.NOT_FOUND],
                    num_waiting=num_waiting,
                    waiting=[
                        contract.WaitingLineOut(id=line_id, state=state, request_id=request_id)
                        for line_id, state, request_id in waiting
                    ],
                )
            )
        return contract.DropOut(files=out, lists=[service.known(session, drop_list) for drop_list in standard.DropList])


@gateway.serves(router, contract.ANSWER)
def get_drop_answer(call: calls.Call, query: contract.FileQuery) -> StreamingResponse:
    with call.reading() as session:
        service.check_answered(session, query.file, contract.list_of(query.file))
        # The whole file is written from one snapshot before it is sent, so that no status in it changes halfway.
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  closed by _pieces
        file.write(b"Id,Status\r\n")
        for line_id, state, _ in service.lines_of(session, query.file, waiting=False):
            if state in service.ANSWERED:
                file.write(f"{line_id},{state}\r\n".encode())
    with call.writing() as session:
        service.note_answer(session, query.file)
    file.seek(0)
    headers = {"Content-Disposition": f'attachment; filename="{query.file}"'}
    return StreamingResponse(_pieces(file), media_type="text/csv; charset=utf-8", headers=headers)


def _pieces(file: "tempfile.SpooledTemporaryFile[bytes]") -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


@gateway.serves(router, contract.OPT_OUT)
def opt_out_drop_lines(call: calls.Call, body: contract.OptOutIn) -> contract.OptedOutOut:
    with call.writing() as session:
        return contract.OptedOutOut(num_lines=service.opt_out(session, body.ids))


MOUNTS = (gateway.Mount(router=router),)
