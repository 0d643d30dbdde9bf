"""Commands that talk to a gateway: how they do it, and those about datasets, models and runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from app.cli.output import console, in_words, new_group, show
from app.config import Settings
from lethe import Client
from lethe.contract.models import AuditIn, ModelOut, TargetIn
from lethe.contract.problems import Unauthenticated
from lethe.deletion_requests import DeletionRequests
from lethe.models import Models
from lethe.reading import to_json
from lethe.waiting import Progress

dataset = new_group("Rows that models learn from.")
model = new_group("Models that can forget.")
run = new_group("What workers did and are doing.")
commands = new_group()
for name, group in (("dataset", dataset), ("model", model), ("run", run)):
    commands.add_typer(group, name=name)

Url = Annotated[str | None, typer.Option(envvar="LETHE_URL", help="Gateway; default: LETHE_HOST and LETHE_PORT.")]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
Key = Annotated[str | None, typer.Option(envvar="LETHE_API_KEY", help="API key; default: the admin key file.")]

_RETRY_SECONDS = 3.0
"""Patience with the gateway: somebody at a terminal would rather hear that it is not there."""


def connect(url: str | None, key: str | None, *, retry_seconds: float = _RETRY_SECONDS) -> Client:
    settings = Settings()
    if key is None:
        path = settings.resolved_admin_key_file()
        if not path.exists():
            raise Unauthenticated(f"no API key; set LETHE_API_KEY (there is no {path})")
        key = path.read_text().strip()
    return Client(url or f"http://{settings.host}:{settings.port}", key, retry_seconds=retry_seconds)


def of_one(group: typer.Typer, command: str, does: str, call: Callable[[Client], Callable[[str], Any]]) -> None:
    """Add a command that takes an id, makes one call, and shows what was answered."""

    @group.command(command, help=does)
    def called(one: Id, url: Url = None, key: Key = None) -> None:
        with connect(url, key) as client:
            show(call(client)(one))


def waits(group: typer.Typer, does: str, resource: Callable[[Client], Models | DeletionRequests]) -> None:
    """Add the command `wait`, which takes an id."""

    @group.command("wait", help=does)
    def waited(one: Id, url: Url = None, key: Key = None) -> None:
        with connect(url, key) as client:
            show_when_over(resource(client), one)


def show_when_over(resource: Models | DeletionRequests, one: str) -> None:
    """Wait, with a progress bar, and show what became of it; exit code 1 if it came to nothing."""
    with bar() as progress:
        found = resource.wait(one, progress=progress)
    show(found)
    if isinstance(found, ModelOut) and found.status != "live":
        raise typer.Exit(1)


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar, on a terminal, for something to wait for."""
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    with ProgressBar(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as shown:
        task = shown.add_task("waiting", total=None)

        def progress(status: str, done: int, total: int | None) -> None:
            shown.update(task, description=status)
            if total is not None:  # what is over has no steps any more
                shown.update(task, completed=done, total=total)

        yield progress


@dataset.command("create")
def dataset_create(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")],
    name: Annotated[str | None, typer.Option(help="Default: the file's name")] = None,
    schema: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="The public schema (JSON)")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes, in the order of the labels of an .npz file: no,yes")
    ] = None,
    skip_suppressed: Annotated[bool, typer.Option(help="Leave out rows of people who asked to be forgotten")] = False,
    adaptive_epsilon: Annotated[
        float | None, typer.Option(help="With --adaptive-delta: what all versions may ever tell about one row, fixed")
    ] = None,
    adaptive_delta: Annotated[float | None, typer.Option()] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Upload rows."""
    with connect(url, key) as client, console.status(f"Uploading {file.name}"):
        created = client.datasets.upload(
            file,
            name=name,
            schema=schema,
            classes=classes.split(",") if classes is not None else None,
            suppressed="skip" if skip_suppressed else "refuse",
            adaptive_epsilon=adaptive_epsilon,
            adaptive_delta=adaptive_delta,
        )
    show(created)


@dataset.command("add")
def dataset_add(
    dataset_id: str,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows, as the dataset has them")],
    skip_suppressed: Annotated[bool, typer.Option(help="Leave out rows of people who asked to be forgotten")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Add rows for slots of forgotten people; the models of the dataset learn again."""
    with connect(url, key) as client, console.status(f"Uploading {file.name}"):
        added = client.datasets.add(dataset_id, file, suppressed="skip" if skip_suppressed else "refuse")
    show(added)


@dataset.command("list")
def dataset_list(url: Url = None, key: Key = None) -> None:
    """All datasets, newest first."""
    with connect(url, key) as client:
        for found in client.datasets.list():
            console.print(f"{found.id}  {found.num_records:>9} of {found.num_slots} rows  {found.name}")


of_one(dataset, "show", "One dataset.", lambda client: client.datasets.get)
of_one(
    dataset,
    "recheck",
    "Open everything of a dataset again, once the right files are back: if nothing is damaged, runs go on.",
    lambda client: client.datasets.recheck,
)


@model.command("create")
def model_create(
    dataset_id: str,
    name: Annotated[str, typer.Option()] = "model",
    epsilon: Annotated[float, typer.Option(help="Target: epsilon of every certificate")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Target: delta; default num_slots^-1.1")] = None,
    l2: Annotated[float | None, typer.Option(help="Regularisation")] = None,
    noise_scale: Annotated[float | None, typer.Option(help="sigma")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows that a step reads, at least; default all")] = None,
    cool_down: Annotated[int | None, typer.Option(help="Last steps of a run, over which the step size falls")] = None,
    evaluation_dataset: Annotated[str | None, typer.Option(help="Dataset to measure accuracy on")] = None,
    audit_lanes: Annotated[int | None, typer.Option(help="Of each run; 0: no audit")] = None,
    audit_chains: Annotated[int | None, typer.Option(help="Of an audit that is asked for")] = None,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it has learned")] = True,
    url: Url = None,
    key: Key = None,
) -> None:
    """Learn a model."""
    with connect(url, key) as client:
        created = client.models.create(
            name=name,
            dataset_id=dataset_id,
            target=TargetIn(epsilon=epsilon, delta=delta),
            l2=l2,
            noise_scale=noise_scale,
            batch_size=batch_size,
            cool_down=cool_down,
            evaluation_dataset_id=evaluation_dataset,
            audit=AuditIn.model_validate(
                {name: value for name, value in (("lanes", audit_lanes), ("chains", audit_chains)) if value is not None}
            ),
        )
        if wait:
            show_when_over(client.models, created.id)
        else:
            show(created)


@model.command("list")
def model_list(url: Url = None, key: Key = None) -> None:
    """All models, newest first."""
    with connect(url, key) as client:
        for found in client.models.list():
            console.print(f"{found.id}  {found.status:<10} version {found.live_version}  {found.name}")


@model.command("audit")
def model_audit(
    model_id: Id,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it is done, and show its run")] = True,
    url: Url = None,
    key: Key = None,
) -> None:
    """Let many canaries be learned and forgotten, apart from the model's data; exit code 1 if that refutes anything."""
    with connect(url, key) as client:
        asked = client.models.audit(model_id)
        if not wait:
            show(asked)
            return
        with bar() as progress:
            done = client.models.wait_for_audit(model_id, progress=progress)
    show(done)
    if done is None or done.status != "published":
        raise typer.Exit(1)


@model.command("weights")
def model_weights(model_id: str, version: int, to: Path, url: Url = None, key: Key = None) -> None:
    """Download the live version (safetensors)."""
    with connect(url, key) as client:
        to.write_bytes(client.models.weights(model_id, version))


waits(model, "Wait, with a progress bar, until a model is live.", lambda client: client.models)
for command, does, call in (
    ("show", "One model: its mechanism, its guarantees, its progress.", lambda client: client.models.get),
    ("relearn", "Learn again from scratch on the present data.", lambda client: client.models.relearn),
    ("serving", "Whether the live version may be served now.", lambda client: client.models.serving),
):
    of_one(model, command, does, call)


@run.command("list")
def run_list(
    model_id: Annotated[str | None, typer.Option("--model", help="Only of this model")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """All runs, newest first, and what their audits say."""
    with connect(url, key) as client:
        for found in client.runs.list(model_id=model_id):
            steps = f"{found.steps_done:>7} of {found.steps_total} steps"
            console.print(f"{found.id}  {found.kind:<7} {found.status:<9} {steps}  {in_words(to_json(found.audit))}")


def retires(group: typer.Typer, does: str, what: str, call: Callable[[Client], Callable[[str], object]]) -> None:
    """Add the command `retire`, which takes an id and asks first."""

    @group.command("retire", help=does)
    def retired(
        one: Id,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
        url: Url = None,
        key: Key = None,
    ) -> None:
        if not yes:
            typer.confirm(f"Retire {one}? {what} are destroyed for good.", abort=True, err=True)
        with connect(url, key) as client:
            show(call(client)(one))


retires(model, "Take a model out of service for good.", "Its weights", lambda client: client.models.retire)
retires(dataset, "Let go of a dataset that nobody needs.", "Its rows", lambda client: client.datasets.retire)
of_one(run, "cancel", "Stop a run that learns or audits.", lambda client: client.runs.cancel)
of_one(run, "show", "One run: how far it is, or how it ended.", lambda client: client.runs.get)
