"""Types shared by the bodies, filters and responses of several resources.

This module also provides advice on unknown names: the expected names, and the one that was probably meant.
"""

import datetime
import difflib
import itertools
import string
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    Strict,
    model_validator,
)
from pydantic.fields import FieldInfo

_MAX_LISTED_WORDS = 25
_MAX_LENGTH = 60
_ALIKE = 0.6


def expected(names: Iterable[str], *, found: object = None) -> str:
    """Return advice such as `expected one of age, work; did you mean age?`, with the name nearest to `found`."""
    choices = sorted(names)
    if not choices:
        return "expected none here"
    listed = ", ".join(choices[:_MAX_LISTED_WORDS]) + (", ..." if len(choices) > _MAX_LISTED_WORDS else "")
    advice = f"expected one of {listed}" if len(choices) > 1 else f"expected {listed}"
    meant = nearest(found, choices)
    return f"{advice}; did you mean {meant}?" if meant is not None and len(choices) > 1 else advice


def nearest(found: object, names: Iterable[str]) -> str | None:
    """Return the name that `found` probably means: one containing it or differing in few characters; else None."""
    if not isinstance(found, str) or not 0 < len(found) <= _MAX_LENGTH:
        return None
    by_letters = {_letters(name): name for name in names if len(name) <= _MAX_LENGTH}
    letters_found = _letters(found)
    near = difflib.get_close_matches(letters_found, by_letters, n=1, cutoff=_ALIKE)
    if near:
        return by_letters[near[0]]
    parts = [name for letters, name in by_letters.items() if len(letters_found) > 2 and (letters_found in letters)]
    return min(parts, key=len, default=None)


def trimmed(text: str) -> str:
    """Return a setting or secret without the white space, byte order mark and pair of quotes that editors, shells and
    mounted files add around it."""
    text = text.strip(string.whitespace + "\ufeff")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


T = TypeVar("T")

_MAX_ENTRIES = 100
MAX_BODY_BYTES = 32 * 2**20
"""Maximum length of any body that is not a file, since such bodies are read into memory."""
Positive = Annotated[FiniteFloat, Field(gt=0)]
Delta = Annotated[float, Field(gt=0, lt=1)]
SubjectId = Annotated[str, Field(min_length=1, max_length=500)]


def _is_whole(text: str) -> str:
    if text.endswith("\n"):
        raise ValueError("expected no line feed at the end")
    return text


# Python's `$` matches before a final line feed as well.
WHOLE = AfterValidator(_is_whole)
"""Validator for texts with a pattern of any length: refuses a line feed after the text that the pattern matches."""
# PostgreSQL cannot store NUL.
Text = Annotated[str, Field(pattern="^[^\\x00]*$")]
Name = Annotated[Text, Field(min_length=1, max_length=200)]
Explanation = Annotated[Text, Field(min_length=1, max_length=2000)]
Sha256 = Annotated[str, Field(pattern="^[0-9A-Fa-f]{64}$", max_length=64), AfterValidator(str.lower)]


def is_written_out(moment: Any) -> Any:
    """Return `moment` unless it is a number, which pydantic would read as seconds and the OpenAPI document forbids."""
    if not (isinstance(moment, datetime.date) or (isinstance(moment, str) and moment[4:5] == "-")):
        raise ValueError("expected RFC 3339, such as 2026-01-31T12:00:00Z")
    return moment


def first_entries(given: Any) -> Any:
    """Return `given`, cut to its first hundred entries if it is an object, so that a refusal lists few faults."""
    return dict(itertools.islice(given.items(), _MAX_ENTRIES)) if isinstance(given, dict) else given


Moment = Annotated[
    AwareDatetime,
    Strict(False),
    BeforeValidator(is_written_out),
    Field(ge=datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), le=datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)),
    AfterValidator(lambda moment: moment.astimezone(datetime.UTC)),
]


MAX_DEPTH = 32
"""Maximum nesting depth of lists and objects in JSON."""
_TO_LISTS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)).difference(b'{}[]"'))


def is_deep(text: bytes | bytearray) -> bool:
    """Return True if JSON nests deeper than `MAX_DEPTH`, without parsing it; brackets inside strings do not count."""
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Texts without brackets are gone first, as there may be many.
    brackets = unescaped.translate(_TO_LISTS, _NO_BRACKETS).replace(b'""', b"")
    brackets = b"".join(brackets.split(b'"')[::2])
    for _ in range(min(MAX_DEPTH, len(brackets))):
        if b"[" * (MAX_DEPTH + 1) in brackets:
            return True
        brackets = brackets.replace(b"[]", b"")
    # Brackets that no other matches are left of a text that is not JSON.
    return b"[]" in brackets or len(brackets) > MAX_DEPTH


def optional(description: str) -> Any:
    """Return a field that is None unless it is given."""
    return Field(default=None, description=description)


class Body(BaseModel):
    """JSON body of a request, strictly typed: "1" and true are not numbers. Unknown fields are refused.

    Patterns use Python's engine: the default engine retains stack contents from its first use, possibly callers' texts.
    """

    model_config = ConfigDict(extra="forbid", strict=True, regex_engine="python-re")
    MAX_BYTES: ClassVar[int] = 2**20
    """Maximum length of the body. Parsing takes processor time in proportion to it, whatever the body contains."""
    MAX_MEMBERS: ClassVar[int] = 20_000
    """Maximum number of values in a body, estimated before parsing from its commas and opening brackets, even those
    within texts. Each value can be a fault."""

    @model_validator(mode="before")
    @classmethod
    def _cut(cls, given: object) -> object:
        """Keep only the first hundred unknown fields, because each is reported as a fault and takes a kilobyte."""
        if not isinstance(given, dict) or len(given) <= len(cls.model_fields) + _MAX_ENTRIES:
            return given
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = itertools.islice((name for name in given if name not in known), _MAX_ENTRIES)
        return {name: given[name] for name in (*known, *unknown) if name in given}


class LargeBody(Body):
    """JSON body that may be as long as any request body other than a file."""

    MAX_BYTES = MAX_BODY_BYTES
    MAX_MEMBERS = 1_000_000


class Form(Body):
    """Fields of a form apart from its file, each sent as text: lists and objects as JSON, a path as its file's text."""


class Query(BaseModel):
    """Query parameters of a call. Unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", regex_engine="python-re")


class Paging(Query):
    """Query parameters of a list."""

    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items per page.")] = 50
    cursor: Annotated[str, Field(max_length=500)] | None = optional(
        "`next_cursor` of the previous page. Default: the first page."
    )


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields, keyed by their names in the contract; only `schema` has a different name in Python."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


class Answer(BaseModel):
    """Frozen JSON body of a response. Fields added by a newer gateway are ignored; missing fields are refused."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    @classmethod
    def of(cls, source: object, **given: Any) -> Self:
        """Build the response from `given`, and all other fields from the attributes of `source` with the same names."""
        values = {name: getattr(source, name) for name in cls.model_fields if name not in given}
        return cls.model_validate(values | given, from_attributes=True)


class PageOut(Answer, Generic[T]):
    items: list[T] = Field(description="Items on this page.")
    next_cursor: str | None = Field(description="Cursor of the next page; null on the last page.")


class ProblemBody(Answer):
    """Body of every error response (RFC 9457)."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(description="URN that identifies the problem type, such as urn:lethe:problem:not_found.")
    title: str = Field(description="Short human-readable name of the problem.")
    status: int = Field(description="HTTP status of the response.")
    detail: str = Field(description="Human-readable explanation of the problem and how to fix it.")
    code: str = Field(description="Stable, machine-readable problem code.")
    errors: list[dict[str, str]] | None = optional("Invalid inputs, each with `path` and `message`; null if none.")


def example(**body: Any) -> ConfigDict:
    """Return a model configuration with an example body for `/docs`."""
    return ConfigDict(json_schema_extra={"examples": [body]})


class SubjectIn(Body):
    """Person whom a call concerns, identified by subject ID or by the hash of the subject ID."""

    subject_id: SubjectId | None = optional("Subject ID of the person. Give either this or subject_sha256.")
    subject_sha256: Sha256 | None = optional(
        "SHA-256 (hex) of the subject ID in UTF-8, normalised by the tenant's subject_rule."
    )
    kind: Name | None = optional("Kind of the identifier, such as email. Default: customer_id.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.subject_id is None) == (self.subject_sha256 is None):
            raise ValueError("expected either subject_id or subject_sha256")
        return self
