"""Operations on California's delete list: DROP files, people's standard hashes, and response files."""

import base64
import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from lethe.contract import fields, operation, problems, sets
from lethe.features.drop.standard import DropList
from lethe.features.identities.contract import IdentifierIn

MAX_LINES = 5000
MAX_PEOPLE = 1000
MAX_LISTED = 20
_FILE = re.compile(r"[0-9]{8}_[0-9]{4}_(Email|Phone|NDZ|NameVIN|MAID|CTVID|Removed)(?:_[A-Za-z0-9]{1,10})?\.csv")
_DIGEST_BYTES = 32


class DropUnanswered(problems.Conflict, title="The DROP file cannot be answered or loaded as it is"): ...


def list_of(file: str) -> DropList | None:
    """Return the list that a DROP file's name denotes; None for a file of removed lines. Raises `ValueError`."""
    if (parts := _FILE.fullmatch(file)) is None:
        raise ValueError("expected the name of a DROP file, such as 20260312_4821_Email.csv")
    return None if parts[1] == "Removed" else DropList(parts[1])


def _named(file: str) -> str:
    list_of(file)
    return file


def _digest(text: str) -> str:
    try:
        digest = base64.b64decode(text, validate=True)
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        raise ValueError("expected a SHA-256 in base64")
    return text


FileName = Annotated[str, Field(max_length=100), AfterValidator(_named)]
Hash = Annotated[str, Field(min_length=44, max_length=44), AfterValidator(_digest)]
LineId = Annotated[str, Field(pattern="^[A-Za-z0-9]{12}$", max_length=12)]
ListName = Annotated[DropList, Strict(False)]


class LineIn(fields.Body):
    id: LineId = Field(description="ID of the line in the DROP file.")
    hash: Hash = Field(description="Hash in the line (base64).", repr=False)
    list_type: ListName | None = fields.optional(
        "ListType of a removed line. Required in a file of removed lines; not allowed in other files."
    )


class LinesIn(fields.LargeBody):
    file: FileName = Field(description="Name of the DROP file, such as 20260312_4821_Email.csv.")
    lines: Annotated[list[LineIn], Field(max_length=MAX_LINES, fail_fast=True)] = Field(
        description="Lines of the file. They can be split across calls in any way."
    )
    num_lines: Annotated[int, Field(ge=0, lt=2**31)] | None = fields.optional(
        "Number of lines in the whole file, given in its last call. The file has no answer before all are loaded."
    )

    @model_validator(mode="after")
    def _listed(self) -> Self:
        if any((line.list_type is None) != (list_of(self.file) is not None) for line in self.lines):
            raise ValueError("expected the list of each line in a file of removed lines, and in no other file")
        return self


class LinesLoadedOut(fields.Answer):
    file: str = Field(description="Name of the file.")
    num_loaded: int = Field(description="Number of lines of the file that have been loaded so far.")
    num_lines: int | None = Field(description="Number of lines in the whole file; null until the last call for it.")
    num_irrevocable: int | None = Field(
        description="Number of lines in this call that were removed too late, because the person's data has been or is "
        "being erased; null for callers without accounting:read."
    )


class PersonIn(IdentifierIn):
    """Identifier of a person, and the hashes under which DROP lists can name them."""

    hashes: dict[ListName, Annotated[list[Hash], Field(max_length=100)]] = Field(
        description="Hashes (base64) of the person, keyed by DROP list. An empty array states that no data covered by "
        "that DROP list is held about the person.",
        repr=False,
    )


class PeopleIn(fields.LargeBody):
    MAX_MEMBERS = 100_000
    people: Annotated[list[PersonIn], Field(min_length=1, max_length=MAX_PEOPLE, fail_fast=True)] = Field(
        description="People and their hashes in DROP's standard formats."
    )


class PeopleOut(fields.Answer):
    num_people: int = Field(description="Number of people in the call.")


class WaitingLineOut(fields.Answer):
    id: str = Field(description="ID of the line in the DROP file.")
    state: str = Field(
        description="matching: the request is about to be created; open: the request has not ended; cancelled: the "
        "request was cancelled, so load the file again or reject a new request; several: the hash matches several "
        "people."
    )
    request_id: str | None = Field(description="ID of the request created for the line; null if none has been created.")


class FileOut(fields.Answer):
    file: str = Field(description="Name of the file.")
    list_type: DropList = Field(description="DROP list to which the file belongs.")
    num_lines: int | None = Field(description="Number of lines in the whole file; null until the last call for it.")
    num_loaded: int = Field(description="Number of lines loaded, including lines that DROP removed later.")
    num_removed: int = Field(description="Number of lines that DROP removed later, which need no answer.")
    num_deleted: int = Field(description="Number of lines whose requests were completed (status 3).")
    num_exempted: int = Field(description="Number of lines whose requests were rejected on a legal ground (status 2).")
    num_opted_out: int = Field(description="Number of lines matching several people, all of them opted out (status 4).")
    num_not_found: int = Field(description="Number of lines that currently match no person (status 5).")
    num_waiting: int = Field(description="Number of lines that do not have a status yet.")
    waiting: list[WaitingLineOut] = Field(description=f"The first {MAX_LISTED} lines without a status.")


class ListOut(fields.Answer):
    list_type: DropList = Field(description="Name of the DROP list.")
    num_people: int = Field(description="Number of people whose hashes for this list are known.")
    num_unstated: int = Field(
        description="Number of people in datasets or the identity map whose hashes for this list are unknown. Until "
        "this is 0, no line of the list is reported as not found."
    )
    num_unhashed: int = Field(
        description="Number of identifiers in the identity map without a DROP hash, because they were loaded as hashes "
        "or by an older release. Load them again in plain text. Until this is 0, no line is reported as not found."
    )


class DropOut(fields.Answer):
    files: list[FileOut] = Field(description="Loaded files, newest first.")
    lists: list[ListOut] = Field(description="Number of people with known and unknown hashes for each list.")


class FileQuery(fields.Query):
    file: FileName = Field(description="Original name of the DROP file.")


class OptOutIn(fields.Body):
    ids: Annotated[list[LineId], Field(min_length=1, max_length=1000)] = Field(
        description="IDs of the lines to confirm, all in state `several`."
    )


class OptedOutOut(fields.Answer):
    num_lines: int = Field(description="Number of lines now reported as opted out.")


_DROP = operation.ResourceOperations("Deletion requests", "/v1/drop")

LOAD = _DROP.operation(
    "load_drop_lines",
    "POST",
    ":load",
    scope=sets.Scope.REQUESTS_WRITE,
    takes=LinesIn,
    gives=LinesLoadedOut,
    repeat="idempotent",
    problems=(DropUnanswered,),
    does="Load lines of a file from California's DROP; either all or none are loaded. Lines that match one person "
    "become deletion requests within about ten seconds. Removed lines withdraw their requests unless it is too late.",
)
PEOPLE = _DROP.operation(
    "load_drop_people",
    "POST",
    "/people",
    scope=sets.Scope.MODELS_WRITE,
    takes=PeopleIn,
    gives=PeopleOut,
    repeat="idempotent",
    problems=(problems.StorageQuotaExceeded,),
    does="State the hashes by which DROP lists may identify people, or that no data covered by a list is held about "
    "them. Hashes are added to those of earlier calls; only keyed hashes of them are stored.",
)
GET = _DROP.operation(
    "get_drop",
    "GET",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=DropOut,
    does="Return the DROP files with their line counts by status, and the number of people whose hashes for a list are "
    "unknown.",
)
ANSWER = _DROP.operation(
    "get_drop_answer",
    "GET",
    "/answer.csv",
    scope=sets.Scope.ACCOUNTING_READ,
    query=FileQuery,
    gives=bytes,
    problems=(DropUnanswered,),
    does="Return the answer to a DROP file (`Id,Status`) once every line has a status: 2 exempted, 3 deleted, 4 opted "
    "out, 5 not found.",
)
OPT_OUT = _DROP.operation(
    "opt_out_drop_lines",
    "POST",
    ":opt-out",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=OptOutIn,
    gives=OptedOutOut,
    repeat="idempotent",
    problems=(DropUnanswered,),
    does="Confirm that all people matched by the given lines have been opted out of sale and sharing (status 4).",
)
