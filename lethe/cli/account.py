"""Commands about how much of anybody is left, and the theorems that say so."""

import itertools
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lethe.cli.derived import GROUPS, Asked, derive, made
from lethe.cli.options import Shape
from lethe.cli.output import console, show
from lethe.contract.problems import BoundUnknown, InputInvalid, PreconditionFailed

if TYPE_CHECKING:
    from lethe.theorems import Bound

account = GROUPS["accounting"].app
derive("accounting.preview", Shape(positional=("model_id",), also={"num_records": "--records"}))
derive("accounting.rivals", Shape(also={"num_records": "--records"}))


@made("accounting.trajectory", Shape(defaults={"points": 20}))
def account_trajectory(
    asked: Asked, runs: Annotated[int, typer.Option(min=1, help="How many, from the newest")] = 10
) -> None:
    """Influence and epsilon step by step, run by run, newest first."""
    show(list(itertools.islice(asked(), runs)))


@account.command("bounds")
def account_bounds() -> None:
    """Every theorem in the calculator."""
    from lethe.theorems import CALCULATOR

    for bound in CALCULATOR.values():
        console.print(f"{bound.name:<34}{bound.title}")


@account.command("bound")
def account_bound(
    name: str,
    param: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, once for each; VALUE is JSON, inf or 1/NAME")
    ] = None,
) -> None:
    """Evaluate a theorem, offline; without parameters, say what it states and assumes."""
    from lethe.proof.errors import PrivacyError
    from lethe.theorems import CALCULATOR, evaluate

    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; 'lethe account bounds' lists them.")
    if not param:
        _describe(CALCULATOR[name])
        return
    try:
        show(evaluate(name, dict(_parameter(text) for text in param)))
    except PrivacyError as error:
        raise PreconditionFailed(str(error)) from error


@account.command("sweep")
def account_sweep(
    name: str,
    over: Annotated[str, typer.Option(help="The parameter that varies")],
    low: Annotated[float, typer.Option()],
    high: Annotated[float, typer.Option()],
    points: Annotated[int, typer.Option(min=2, max=200)] = 20,
    log: Annotated[bool, typer.Option(help="Spaced by factors")] = False,
    param: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, once for each of the others")] = None,
) -> None:
    """Evaluate a theorem along one of its parameters, offline."""
    from lethe.proof.errors import PrivacyError
    from lethe.theorems import CALCULATOR
    from lethe.theorems.sweep import sweep

    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; 'lethe account bounds' lists them.")
    params = dict(_parameter(text) for text in param or ())
    scale: Literal["linear", "log"] = "log" if log else "linear"
    try:
        show(sweep(CALCULATOR[name], params, over=over, low=low, high=high, points=points, scale=scale))
    except PrivacyError as error:
        raise PreconditionFailed(str(error)) from error


def _describe(bound: "Bound") -> None:
    console.print(f"{bound.title}\n{bound.statement}\nReference: {bound.reference}", markup=False)
    for assumption in bound.assumptions:
        console.print(f"Assumes: {assumption}", markup=False)
    for parameter in bound.parameters:
        default = "" if parameter.required else f" (default: {parameter.default})"
        console.print(f"  {parameter.name:<12} {parameter.kind}: {parameter.description}{default}", markup=False)
    for output, meaning in bound.outputs.items():
        console.print(f"  -> {output}: {meaning}", markup=False)


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputInvalid(f"Expected NAME=VALUE, not {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
