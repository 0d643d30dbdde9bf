"""`/accounting/bounds`: the calculator, theorem by theorem, at a point or along a parameter."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from app.api.calls import Call, page_of
from app.api.gateway import serves
from lethe.contract import bounds as contract
from lethe.contract.bounds import BoundIn, BoundOut, BoundsQuery, SweepIn, SweepOut, SweptOut
from lethe.contract.fields import PageOut
from lethe.contract.problems import BoundUnknown, FieldError, InputInvalid, PreconditionFailed, WorkExceeded
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


router = APIRouter(route_class=_Route)


@serves(router, contract.BOUNDS)
def list_bounds(call: Call, query: BoundsQuery) -> PageOut[BoundOut]:
    page = page_of(list(CALCULATOR.values()), limit=query.limit, cursor=query.cursor)
    items = [BoundOut.model_validate(bound, from_attributes=True) for bound in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.EVALUATE)
def evaluate_bound(call: Call, name: str, body: BoundIn) -> dict[str, Any]:
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


@serves(router, contract.SWEEP)
def sweep_bound(call: Call, name: str, body: SweepIn) -> SweepOut:
    bound = _known(name)
    try:
        with work.within(_budget()):
            found = sweep(
                bound, body.params, over=body.over, low=body.low, high=body.high, points=body.points, scale=body.scale
            )
    except PrivacyError as error:
        raise InputInvalid(str(error), [FieldError("over", str(error))]) from error
    points = [SweptOut.model_validate(point, from_attributes=True) for point in found]
    return SweepOut(name=bound.name, over=body.over, points=points)


def _known(name: str) -> Bound:
    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; GET /v1/accounting/bounds lists them.")
    return CALCULATOR[name]
