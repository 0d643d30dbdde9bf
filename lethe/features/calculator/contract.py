"""Operations of the calculator: its theorems, and their evaluation."""

from typing import Annotated, Any

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class BoundUnknown(problems.NotFound, title="There is no such bound in the calculator"): ...


class WorkExceeded(problems.InputInvalid, title="The evaluation exceeds this service's work limit"): ...


class BoundIn(fields.Body):
    model_config = fields.example(params={"mu": 0.5, "delta": 1e-5})

    params: dict[str, Any] = Field(description="Values of the theorem's parameters, keyed by name.")


class BoundParameterOut(fields.Answer):
    name: str = Field(description="Name of the parameter.")
    kind: str = Field(
        description="Type: real, integer, boolean or choice; or a list type: reals, integers, words or segments."
    )
    description: str = Field(description="Meaning and valid range of the parameter.")
    meaning: str = Field(description="Meaning of the parameter.")
    unit: str = Field(description="Unit of the value, or of each value in a list; empty if it has none.")
    interval: str | None = Field(description='Interval for the value or each list item, as "(0, 1]"; null if none.')
    low: float | None = Field(description="Lower end of the interval; null if there is none.")
    high: float | None = Field(description="Upper end of the interval; null if there is none.")
    is_hypothesis: bool = Field(
        description="True for a precondition that cannot be verified numerically. It is assumed to hold unless denied."
    )
    required: bool = Field(description="True if the parameter is required.")
    default: Any = Field(description="Default value of the parameter; null if it has none.")
    choices: list[str] = Field(description="Permitted values of a choice; empty for other types.")


class BoundOut(fields.Answer):
    """Theorem: its statement, assumptions, parameters and outputs."""

    name: str = Field(description="Name of the theorem, used in the path to evaluate it.")
    title: str = Field(description="Title of the theorem.")
    reference: str = Field(description="Publication or document that contains the theorem.")
    statement: str = Field(description="Statement of the theorem.")
    assumptions: list[str] = Field(
        description="Preconditions that are not parameters; the caller must make sure that they hold."
    )
    parameters: list[BoundParameterOut] = Field(description="Parameters of the theorem.")
    outputs: dict[str, str] = Field(description="Meaning of each output, keyed by name.")


class BoundsQuery(fields.Paging):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of theorems per page.")] = 500


_BOUNDS = operation.ResourceOperations("Accounting", "/v1/accounting/bounds", BoundUnknown)

BOUNDS = _BOUNDS.operation(
    "list_bounds",
    "GET",
    scope=sets.Scope.ACCOUNTING_READ,
    query=BoundsQuery,
    gives=fields.PageOut[BoundOut],
    does="List all theorems of the calculator with their assumptions and parameters, by default on a single page.",
)
EVALUATE = _BOUNDS.of_one(
    "evaluate_bound",
    "POST",
    "/{name}",
    scope=sets.Scope.ACCOUNTING_READ,
    takes=BoundIn,
    gives=dict[str, Any],
    repeat="idempotent",
    problems=(problems.PreconditionFailed, WorkExceeded),
    does='Evaluate a theorem. Infinity is written as "inf", and "1/n" stands for the reciprocal of the parameter '
    "n. Evaluations that need too much work are refused.",
)
