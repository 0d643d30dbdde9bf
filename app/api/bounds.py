"""`/accounting/bounds`: the calculator, theorem by theorem, at a point or along a parameter."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from app.api.calls import Call, Cursor, Limit, call_with, page_of
from app.api.problems import responses
from app.api.schemas import BoundIn, PageOut, SweepIn
from lethe.contract.problems import BoundUnknown, FieldError, InputInvalid, PreconditionFailed, WorkExceeded
from lethe.contract.sets import Scope
from lethe.proof import errors
from lethe.proof.errors import InfeasibleError, NotionError, PreconditionError, PrivacyError
from lethe.theorems import CALCULATOR, Bound, evaluate, work
from lethe.theorems.sweep import sweep
from lethe.theorems.work import Budget

_WORK = 3_000_000
"""Units of `lethe.theorems.work` for one call: a few seconds on a slow machine."""
_SECONDS = 10.0


class _Route(APIRoute):
    """Stops an evaluation that nobody waits for any more."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            await request.body()  # from here on whatever is received says that the caller has gone
            budget = _budget()
            watching = asyncio.create_task(_stop_when_gone(request, budget))
            try:
                with work.within(budget):
                    return await answer(request)
            finally:
                watching.cancel()

        return answered


def _budget() -> Budget:
    return Budget(units=_WORK, seconds=_SECONDS)


async def _stop_when_gone(request: Request, budget: Budget) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    budget.stop()


router = APIRouter(prefix="/accounting/bounds", tags=["Accounting"], route_class=_Route)

Asked = Annotated[Call, call_with(Scope.ACCOUNTING_READ)]
"""Nothing is read for it: a theorem is asked for by whoever may ask about models."""


class BoundParameterOut(BaseModel):
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


class BoundOut(BaseModel):
    """A theorem: what it states, what it takes for granted, what it asks for and what it gives."""

    name: str
    title: str
    reference: str
    statement: str
    assumptions: list[str] = Field(description="Preconditions that are not asked for: whoever uses it establishes them")
    parameters: list[BoundParameterOut]
    outputs: dict[str, str]


class RefusalOut(BaseModel):
    """Why there is no number: the precondition that fails, or domain, notion, infeasible, time, work."""

    name: str
    detail: str


class SweptOut(BaseModel):
    value: float
    outputs: dict[str, Any] | None = Field(description="As the theorem alone gives them; null if it is refused here")
    refused: RefusalOut | None


class SweepOut(BaseModel):
    name: str
    over: str
    points: list[SweptOut]


@router.get("", responses=responses())
def list_bounds(call: Asked, limit: Limit = 500, cursor: Cursor = None) -> PageOut[BoundOut]:
    """The calculator: every theorem, what it assumes, its parameters. Without `limit` all are on one page."""
    page = page_of(list(CALCULATOR.values()), limit=limit, cursor=cursor)
    items = [BoundOut.model_validate(bound, from_attributes=True) for bound in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.post("/{name}", responses=responses(BoundUnknown, PreconditionFailed, WorkExceeded))
def evaluate_bound(call: Asked, name: str, body: BoundIn) -> dict[str, Any]:
    """Evaluate a theorem: infinity is "inf", and "1/n" stands for the reciprocal of the parameter n. What would take
    too much work is refused."""
    bound = _known(name)
    try:
        with work.within(_budget()):
            return evaluate(bound.name, body.params)
    except errors.WorkExceeded as error:
        raise WorkExceeded(str(error), [FieldError("params", str(error))]) from error
    except (PreconditionError, NotionError, InfeasibleError) as error:
        raise PreconditionFailed(str(error)) from error
    except PrivacyError as error:
        raise InputInvalid(str(error), [FieldError("params", str(error))]) from error


@router.post("/{name}/sweep", responses=responses(BoundUnknown))
def sweep_bound(call: Asked, name: str, body: SweepIn) -> SweepOut:
    """A theorem over a grid of one of its parameters, for plots; where it is refused, the point says why. After five
    seconds the points that are left are refused (`time`), and those for which too little work is left (`work`)."""
    bound = _known(name)
    try:
        with work.within(_budget()):
            found = sweep(
                bound,
                body.params,
                over=body.over,
                low=body.low,
                high=body.high,
                points=body.points,
                scale=body.scale,
            )
    except PrivacyError as error:
        raise InputInvalid(str(error), [FieldError("over", str(error))]) from error
    points = [SweptOut.model_validate(point, from_attributes=True) for point in found]
    return SweepOut(name=bound.name, over=body.over, points=points)


def _known(name: str) -> Bound:
    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; GET /v1/accounting/bounds lists them.")
    return CALCULATOR[name]
