"""Endpoints under `/accounting/bounds`: the calculator's theorems."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.routing import APIRoute

from app.api import calls, gateway
from lethe.contract import fields, problems
from lethe.features.analysis import work
from lethe.features.calculator import contract
from lethe.features.theorems import CALCULATOR, Bound, evaluate
from lethe.features.theorems.bound import NotionError
from lethe.proof.errors import InfeasibleError, PreconditionError, PrivacyError

_WORK = 3_000_000
"""Maximum number of `lethe.features.analysis.work` units per call: a few seconds on a slow machine."""
_SECONDS = 10.0


class _Route(APIRoute):
    """Route that stops an evaluation once its caller has disconnected."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            # The only message after the body reports the disconnection.
            await request.body()
            budget = _budget()
            watcher = asyncio.create_task(_stop_on_disconnect(request, budget))
            try:
                with work.within(budget):
                    return await handler(request)
            finally:
                watcher.cancel()

        return handle


def _budget() -> work.WorkBudget:
    return work.WorkBudget(units=_WORK, seconds=_SECONDS)


async def _stop_on_disconnect(request: Request, budget: work.WorkBudget) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    budget.stop()


router = APIRouter(route_class=_Route)


@gateway.serves(router, contract.BOUNDS)
def list_bounds(call: calls.Call, query: contract.BoundsQuery) -> fields.PageOut[contract.BoundOut]:
    page = calls.page_of(list(CALCULATOR.values()), limit=query.limit, cursor=query.cursor)
    return fields.PageOut(items=[contract.BoundOut.of(bound) for bound in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.EVALUATE)
def evaluate_bound(
    call: calls.Call, name: Annotated[str, Path(description="Name of the theorem.")], body: contract.BoundIn
) -> dict[str, Any]:
    bound = _bound(name)
    try:
        with work.within(_budget()):
            return evaluate(bound.name, body.params)
    except work.WorkBudgetExceeded as error:
        raise contract.WorkExceeded(str(error), [problems.FieldError("params", str(error))]) from error
    except (PreconditionError, NotionError, InfeasibleError) as error:
        raise problems.PreconditionFailed(str(error)) from error
    except PrivacyError as error:
        raise problems.InputInvalid(str(error), [problems.FieldError("params", str(error))]) from error


def _bound(name: str) -> Bound:
    if name not in CALCULATOR:
        raise contract.BoundUnknown("There is no bound {name!r}; GET /v1/accounting/bounds lists them.", name=name)
    return CALCULATOR[name]


MOUNTS = (gateway.Mount(router=router, by_accounting=True),)
