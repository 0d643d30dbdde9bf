"""What answers are made of: frozen values, of which each resource declares its own and these are shared.

A field that a newer gateway adds is ignored, one that is missing is refused. Texts such as `status` and `kind` are not
closed sets here, so that a newer gateway may say more.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from lethe.errors import AnswerInvalid

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """mu-GDP in both directions in one notion, and the (epsilon, delta) it implies. `best_attacker_accuracy`: how often
    the best attacker is right about which of two equally likely worlds they see, at most."""

    notion: str
    adjacency: str
    mu: float
    epsilon: float
    delta: float
    best_attacker_accuracy: float
    reference_process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """All models that carried a person, together. `mu`, `epsilon`, `delta` and `best_attacker_accuracy` are of
    `deletion`; `guarantees` has the other notions too."""

    models: tuple[str, ...]
    mu: float
    epsilon: float
    delta: float
    best_attacker_accuracy: float
    guarantees: tuple[Guarantee, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """How often a rule that was fixed before said that a lane has a canary: of `members` that had, and of others."""

    true_positives: int
    members: int
    false_positives: int
    nonmembers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the lanes of a run showed. `notion`: the guarantee they could refute. `mu`, `epsilon`: certified for one
    record. `mu_lower_bound`, `epsilon_lower_bound`: proved, wrong with probability `error` at most, and in a run that
    was published never above what is certified. `findings`: what is not as it should be. `visits` is None in an audit
    from before it was looked at in what order batches were read."""

    lanes: int
    steps_before: int
    steps: int
    records: int
    guesses: Guesses
    squares: float
    drift: float
    visits: float | None
    notion: str
    mu: float
    epsilon: float
    mu_lower_bound: float
    epsilon_lower_bound: float
    error: float
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A certificate whose signature holds and whose numbers were recomputed, by the gateway or here; or a statement
    that nothing was held, from which no guarantee follows."""

    valid: bool
    key_id: str
    guarantees: tuple[Guarantee, ...]
    statement: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    epsilon: float
    delta: float


def read(kind: type[T], content: bytes, *, of: str) -> T:
    """The value of `kind` that is in the answer to the call `of`.

    Raises `AnswerInvalid`, which names a field and quotes nothing; nor is the error that does quote any part of it.
    """
    try:
        value: T = _adapter(cast(Any, kind)).validate_json(content, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    else:
        return value
    field = next((part for part in fault["loc"] if isinstance(part, str)), "it")
    raise AnswerInvalid(f"the answer to {of} is not Lethe's: {field} ({fault['type']})")


def to_json(value: Any) -> Any:
    """A value as the gateway sent it: what `json.dumps` takes."""
    return to_jsonable_python(value)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
