"""The calculator, theorem by theorem, at a point or along a parameter."""

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from lethe.contract.fields import Answer, Body, Name, PageOut, Paging, example
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import BoundUnknown, PreconditionFailed, WorkExceeded
from lethe.contract.sets import Scope


class BoundIn(Body):
    model_config = example(params={"mu": 0.5, "delta": 1e-5})

    params: dict[str, Any]


class SweepIn(BoundIn):
    model_config = example(params={"delta": 1e-5}, over="mu", low=0.01, high=10.0, scale="log")

    over: Name = Field(description="The parameter that varies: a real or an integer.")
    low: FiniteFloat
    high: FiniteFloat
    points: Annotated[int, Field(ge=2, le=200)] = 50
    scale: Literal["linear", "log"] = "linear"


class BoundParameterOut(Answer):
    name: str
    kind: str = Field(description="real, integer, boolean, choice; reals, integers, words, segments: lists")
    description: str = Field(description="Meaning and range")
    meaning: str
    unit: str = Field(description="Empty where the number has none")
    interval: str | None = Field(description='Where the number, or each in the list, lives: "(0, 1]"; null: no number')
    low: float | None = Field(description="The lower end of the interval; null if there is none")
    high: float | None
    is_hypothesis: bool = Field(
        description="A precondition that no number shows: true as the theorem takes it, refused if it is denied"
    )
    required: bool
    default: Any
    choices: list[str]


class BoundOut(Answer):
    """A theorem: what it states, what it takes for granted, what it asks for and what it gives."""

    name: str
    title: str
    reference: str
    statement: str
    assumptions: list[str] = Field(description="Preconditions that are not asked for: whoever uses it establishes them")
    parameters: list[BoundParameterOut]
    outputs: dict[str, str]


class RefusalOut(Answer):
    """Why there is no number: the precondition that fails, or domain, notion, infeasible, time, work."""

    name: str
    detail: str


class SweptOut(Answer):
    value: float
    outputs: dict[str, Any] | None = Field(description="As the theorem alone gives them; null if it is refused here")
    refused: RefusalOut | None


class SweepOut(Answer):
    name: str
    over: str
    points: list[SweptOut]


class BoundsQuery(Paging):
    limit: Annotated[int, Field(ge=1, le=500)] = 500


_BOUNDS = Resource("Accounting", "/v1/accounting/bounds")

BOUNDS = _BOUNDS.operation(
    "list_bounds",
    "GET",
    scope=Scope.ACCOUNTING_READ,
    query=BoundsQuery,
    gives=PageOut[BoundOut],
    does="The calculator: every theorem, what it assumes, its parameters. Without `limit` all are on one page.",
)
EVALUATE = of_one(
    _BOUNDS.operation(
        "evaluate_bound",
        "POST",
        "/{name}",
        scope=Scope.ACCOUNTING_READ,
        takes=BoundIn,
        gives=dict[str, Any],
        idempotent=True,
        problems=(BoundUnknown, PreconditionFailed, WorkExceeded),
        does='Evaluate a theorem: infinity is "inf", and "1/n" stands for the reciprocal of the parameter n. What '
        "would take too much work is refused.",
    )
)
SWEEP = of_one(
    _BOUNDS.operation(
        "sweep_bound",
        "POST",
        "/{name}/sweep",
        scope=Scope.ACCOUNTING_READ,
        takes=SweepIn,
        gives=SweepOut,
        idempotent=True,
        problems=(BoundUnknown,),
        does="A theorem over a grid of one of its parameters, for plots; where it is refused, the point says why. "
        "After five seconds the points that are left are refused (`time`), and those for which too little "
        "work is left (`work`).",
    )
)
