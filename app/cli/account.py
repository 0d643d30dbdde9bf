"""Commands about how much of anybody is left, and the theorems that say so."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import console, new_group, show
from app.cli.remote import Key, Url, connect
from app.errors import BoundUnknown, InputInvalid, PreconditionFailed

if TYPE_CHECKING:
    from app.privacy.bounds import Bound

account = new_group("How much of anybody is left, and the theorems that say so.")
commands = new_group()
commands.add_typer(account, name="account")


@account.command("model")
def account_model(model_id: str, url: Url = None, key: Key = None) -> None:
    """Where a model stands, and what forgetting one more record would take."""
    with connect(url, key) as client:
        show(client.get(f"/v1/accounting/models/{model_id}"))


@account.command("request")
def account_request(request_id: str, url: Url = None, key: Key = None) -> None:
    """What was signed about a person, and what holds today."""
    with connect(url, key) as client:
        show(client.get(f"/v1/accounting/deletion-requests/{request_id}"))


@account.command("preview")
def account_preview(
    model_id: str,
    records: Annotated[int, typer.Option(min=1, help="How many records would be forgotten")] = 1,
    epsilon: Annotated[float | None, typer.Option(help="Default: the model's target")] = None,
    delta: Annotated[float | None, typer.Option(help="Default: the model's target")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """What forgetting would take; nothing is changed."""
    asked = {"model_id": model_id, "num_records": records, "epsilon": epsilon, "delta": delta}
    with connect(url, key) as client:
        show(client.post("/v1/accounting/preview", asked))


@account.command("bounds")
def account_bounds() -> None:
    """Every theorem in the calculator."""
    from app.privacy.bounds import CALCULATOR

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
    from app.privacy.bounds import CALCULATOR, evaluate
    from app.privacy.errors import PrivacyError

    if name not in CALCULATOR:
        raise BoundUnknown(f"There is no bound {name!r}; 'lethe account bounds' lists them.")
    if not param:
        _describe(CALCULATOR[name])
        return
    try:
        show(evaluate(name, dict(_parameter(text) for text in param)))
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
