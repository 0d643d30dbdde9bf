"""Types that bodies, filters and answers of several resources are made of."""

import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, Strict

T = TypeVar("T")

Positive = Annotated[FiniteFloat, Field(gt=0)]
Text = Annotated[str, Field(pattern="^[^\\x00]*$")]  # PostgreSQL stores no NUL
Name = Annotated[Text, Field(min_length=1, max_length=200)]
Explanation = Annotated[Text, Field(min_length=1, max_length=2000)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", max_length=64)]


def is_written_out(moment: Any) -> Any:
    """Refuse numbers, which pydantic reads as seconds and the OpenAPI document forbids."""
    if not (isinstance(moment, datetime.date) or (isinstance(moment, str) and moment[4:5] == "-")):
        raise ValueError("expected RFC 3339, such as 2026-01-31T12:00:00Z")
    return moment


Moment = Annotated[
    AwareDatetime,
    Strict(False),
    BeforeValidator(is_written_out),
    Field(ge=datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), le=datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)),
    AfterValidator(lambda moment: moment.astimezone(datetime.UTC)),
]


class Body(BaseModel):
    """JSON that is sent, of the types that are asked for: "1" and true are no numbers. Unknown fields are refused.

    Patterns are Python's: the other engine keeps what was on the stack when it first met one, words of callers too.
    """

    model_config = ConfigDict(extra="forbid", strict=True, regex_engine="python-re")


class Query(BaseModel):
    """Parameters in the query of a call: none, if nothing is added. Unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", regex_engine="python-re")


class Paging(Query):
    """A page of a list. `cursor`: the `next_cursor` of the page before."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[str, Field(max_length=500)] | None = None


class Answer(BaseModel):
    """JSON that is answered, frozen. A field that a newer gateway adds is ignored, one that is missing is refused."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class PageOut(Answer, Generic[T]):
    items: list[T]
    next_cursor: str | None


class ProblemBody(Answer):
    """The body of every error answer."""

    model_config = ConfigDict(title="Problem")

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[dict[str, str]] | None = None


def example(**body: Any) -> ConfigDict:
    """A body as `/docs` shows it."""
    return ConfigDict(json_schema_extra={"examples": [body]})
