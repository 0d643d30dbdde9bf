"""Commands about how much of anybody is left, and the theorems that say so."""

import itertools
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli.output import console, new_group, show
from app.cli.remote import Key, Url, connect
from lethe.contract.problems import BoundUnknown, InputInvalid, PreconditionFailed

if TYPE_CHECKING:
    from lethe.theorems import Bound

account = new_group("How much of anybody is left, and the theorems that say so.")
commands = new_group()
commands.add_typer(account, name="account")


@account.command("model")
def account_model(model_id: str, url: Url = None, key: Key = None) -> None:
    """Where a model stands, and what forgetting one more record would take."""
    with connect(url, key) as client:
        show(client.accounting.model(model_id))


@account.command("request")
def account_request(request_id: str, url: Url = None, key: Key = None) -> None:
    """What was signed about a person, and what holds today."""
    with connect(url, key) as client:
        show(client.accounting.deletion_request(request_id))


@account.command("dataset")
def account_dataset(dataset_id: str, url: Url = None, key: Key = None) -> None:
    """What one record has spent in all versions of all models, and which requests would need relearning."""
    with connect(url, key) as client:
        show(client.accounting.dataset(dataset_id))


@account.command("trajectory")
def account_trajectory(
    model_id: str,
    points: Annotated[int, typer.Option(min=2, max=500, help="Of each run, at most")] = 20,
    runs: Annotated[int, typer.Option(min=1, help="How many, from the newest")] = 10,
    url: Url = None,
    key: Key = None,
) -> None:
    """Influence and epsilon step by step, run by run, newest first."""
    with connect(url, key) as client:
        show(list(itertools.islice(client.accounting.trajectory(model_id, points=points), runs)))


Records = Annotated[int, typer.Option(min=1, help="How many records would be forgotten")]
Epsilon = Annotated[float | None, typer.Option(help="Default: the model's target")]
Delta = Annotated[float | None, typer.Option(help="Default: the model's target")]


@account.command("preview")
def account_preview(
    model_id: str,
    records: Records = 1,
    epsilon: Epsilon = None,
    delta: Delta = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Say what so many steps would reach")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Records per run; default: all in one")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """What forgetting would take; nothing is changed."""
    with connect(url, key) as client:
        preview = client.accounting.preview
        show(preview(model_id=model_id, num_records=records, epsilon=epsilon, delta=delta, steps=steps, batch=batch))


@account.command("rivals")
def account_rivals(
    model_id: str,
    records: Records = 1,
    epsilon: Epsilon = None,
    delta: Delta = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """What other published guarantees need for the same request."""
    with connect(url, key) as client:
        show(client.accounting.rivals(model_id, num_records=records, epsilon=epsilon, delta=delta))


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
