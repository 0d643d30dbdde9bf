"""Operations of the calculator: its theorems and their evaluation."""

from typing import Annotated, Any

from pydantic import Field

from lethe.contract.fields import Answer, Body, PageOut, Paging, example
from lethe.contract.operation import ResourceOperations
from lethe.contract.problems import InputInvalid, NotFound, PreconditionFailed
from lethe.contract.sets import Scope


class BoundUnknown(NotFound, title="There is no such bound in the calculator"): ...


class WorkExceeded(InputInvalid, title="The evaluation exceeds this service's work limit"): ...


class BoundIn(Body):
    model_config = example(params={"mu": 0.5, "delta": 1e-5})

    params: dict[str, Any] = Field(description="Values of the theorem's parameters by name.")


class BoundParameterOut(Answer):
    name: str = Field(description="Name of the parameter.")
    kind: str = Field(
        description="Kind: real, integer, boolean or choice; or a list: reals, integers, words or segments."
    )
    description: str = Field(description="Meaning and range of the parameter.")
    meaning: str = Field(description="Meaning of the parameter.")
    unit: str = Field(description="Unit of the number, or of each number in a list; empty if none.")
    interval: str | None = Field(description='Interval of the number, or of each in a list, as "(0, 1]"; null if none.')
    low: float | None = Field(description="Lower end of the interval; null if none.")
    high: float | None = Field(description="Upper end of the interval; null if none.")
    is_hypothesis: bool = Field(
        description="True for a precondition that no number can verify; it is assumed unless denied."
    )
    required: bool = Field(description="True if the parameter must be given.")
    default: Any = Field(description="Default value of the parameter; null if none.")
    choices: list[str] = Field(description="Permitted values of a choice; empty for other kinds.")


class BoundOut(Answer):
    """Theorem: its statement, assumptions, parameters and outputs."""

    name: str = Field(description="Name of the theorem, as in the path of its evaluation.")
    title: str = Field(description="Title of the theorem.")
    reference: str = Field(description="Source of the theorem.")
    statement: str = Field(description="Statement of the theorem.")
    assumptions: list[str] = Field(
        description="Preconditions that are not parameters and that the caller must establish."
    )
    parameters: list[BoundParameterOut] = Field(description="Parameters of the theorem.")
    outputs: dict[str, str] = Field(description="Meaning of each output, by name.")


class BoundsQuery(Paging):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of theorems per page.")] = 500


_BOUNDS = ResourceOperations("Accounting", "/v1/accounting/bounds", BoundUnknown)

BOUNDS = _BOUNDS.operation(
    "list_bounds",
    "GET",
    scope=Scope.ACCOUNTING_READ,
    query=BoundsQuery,
    gives=PageOut[BoundOut],
    does="List every theorem of the calculator with its assumptions and parameters, all on one page by default.",
)
EVALUATE = _BOUNDS.of_one(
    "evaluate_bound",
    "POST",
    "/{name}",
    scope=Scope.ACCOUNTING_READ,
    takes=BoundIn,
    gives=dict[str, Any],
    repeat="idempotent",
    problems=(PreconditionFailed, WorkExceeded),
    does='Evaluate a theorem: infinity is "inf", and "1/n" stands for the reciprocal of the parameter n. An '
    "evaluation that needs too much work is refused.",
)
