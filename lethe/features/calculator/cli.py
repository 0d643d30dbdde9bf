"""Commands that evaluate theorems locally."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli import derived, gateway
from lethe.contract.problems import InputInvalid, PreconditionFailed
from lethe.features.calculator.contract import BoundUnknown

if TYPE_CHECKING:
    from lethe.features.theorems import Bound

account = derived.GROUPS["accounting"].app
# `bound` and `bounds` evaluate on this machine.
derived.VERBS.update({"accounting.bounds": "list-bounds", "accounting.evaluate": "evaluate-bound"})


@account.command("bounds")
def account_bounds() -> None:
    """List the calculator's theorems."""
    from lethe.features.theorems import CALCULATOR

    for bound in CALCULATOR.values():
        gateway.console.print(f"{bound.name:<34}{bound.title}")


@account.command("bound")
def account_bound(
    name: str,
    param: Annotated[
        list[str] | None, typer.Option(help="Parameter as NAME=VALUE; VALUE is JSON, inf or 1/NAME; can be repeated")
    ] = None,
) -> None:
    """Evaluate a theorem offline; without parameters, show its statement and assumptions."""
    from lethe.features.theorems import CALCULATOR, evaluate
    from lethe.proof.errors import PrivacyError

    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; 'lethe account bounds' lists them.")
    if not param:
        _describe(CALCULATOR[name])
        return
    try:
        gateway.show(evaluate(name, dict(_parameter(text) for text in param)))
    except PrivacyError as error:
        raise PreconditionFailed(str(error)) from error


def _describe(bound: "Bound") -> None:
    gateway.console.print(f"{bound.title}\n{bound.statement}\nReference: {bound.reference}", markup=False)
    for assumption in bound.assumptions:
        gateway.console.print(f"Assumes: {assumption}", markup=False)
    for parameter in bound.parameters:
        default = "" if parameter.required else f" (default: {parameter.default})"
        gateway.console.print(
            f"  {parameter.name:<12} {parameter.kind}: {parameter.description}{default}", markup=False
        )
    for output, meaning in bound.outputs.items():
        gateway.console.print(f"  -> {output}: {meaning}", markup=False)


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputInvalid(f"Expected NAME=VALUE, not {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
