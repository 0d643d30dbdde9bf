"""Commands about datasets, models and runs that are more than a call and its answer."""

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.derived import GROUPS, Asked, derive, made
from lethe.cli.gateway import Key, Url, connect
from lethe.cli.options import Shape
from lethe.cli.output import bar, console, in_words, show
from lethe.client import Client
from lethe.contract import additions, datasets, networks
from lethe.contract.models import ModelOut
from lethe.contract.problems import Problem
from lethe.contract.sets import RunStatus
from lethe.deletion_requests import DeletionRequests
from lethe.methods import makes
from lethe.models import SERVED, Models
from lethe.reading import to_json
from lethe.waiting import Progress

Id = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
_POLL_SECONDS = 1.0  # while an upload is encoded
_ENDS_WITHIN = 2.0  # seconds, for the last question about it
Skip = Annotated[bool, typer.Option(help="Leave out rows of people who asked to be forgotten")]
Repeatable = Annotated[
    str | None, typer.Option("--idempotency-key", help="With your own, another process may repeat the call")
]


@GROUPS["datasets"].app.command("create")
@makes(datasets.UPLOAD)
def dataset_create(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")],
    name: Annotated[str | None, typer.Option(help="Default: the file's name")] = None,
    schema: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="The public schema (JSON)")] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes, in the order of the labels of an .npz file: no,yes")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="MIN,MAX", help="Range of the numbers y of an .npz file, instead of classes")
    ] = None,
    counts: Annotated[bool, typer.Option("--counts", help="With --target 0,MAX: the numbers are counts")] = False,
    network: Annotated[
        str | None, typer.Option(metavar="ID", help="The public network whose features of these numbers are the rows")
    ] = None,
    skip_suppressed: Skip = False,
    adaptive_epsilon: Annotated[
        float | None, typer.Option(help="With --adaptive-delta: what all versions may ever tell about one row, fixed")
    ] = None,
    adaptive_delta: Annotated[float | None, typer.Option()] = None,
    idempotency_key: Repeatable = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Upload rows."""
    with connect(url, key) as client, _uploading(client, file, name or file.stem, encoded=network is not None):
        created = client.datasets.upload(
            file,
            name=name,
            schema=schema,
            classes=classes.split(",") if classes is not None else None,
            target=_range(target, counts),
            network_id=network,
            suppressed="skip" if skip_suppressed else "refuse",
            adaptive_epsilon=adaptive_epsilon,
            adaptive_delta=adaptive_delta,
            idempotency_key=idempotency_key,
        )
    show(created)


@contextmanager
def _uploading(client: Client, file: Path, name: str, *, encoded: bool) -> Iterator[None]:
    """Show that a file is on its way, and where its rows go through a network, how many have. `name`: of the upload."""
    if not encoded:
        with console.status(f"Uploading {file.name}"):
            yield
        return
    ended = threading.Event()
    with bar() as progress:
        progress("uploading", 0, None)
        watcher = threading.Thread(
            target=_watch, args=(client, name, file.stat().st_size, progress, ended), daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(timeout=_ENDS_WITHIN)


def _watch(client: Client, name: str, num_bytes: int, progress: Progress, ended: threading.Event) -> None:
    """Tell how far the latest upload of this name and so many bytes is, until it has ended."""
    while not ended.wait(_POLL_SECONDS):
        with suppress(Problem, RuntimeError):  # the gateway does not say this time, or the client was closed
            found = client.datasets.encodings().items
            for one in [one for one in found if (one.name, one.num_bytes) == (name, num_bytes)][:1]:
                progress("encoding", one.num_encoded, one.num_rows)


def _has_network(client: Client, dataset_id: str) -> bool:
    with suppress(Problem):  # a key may add rows and see none
        return client.datasets.get(dataset_id).network_id is not None
    return False


@GROUPS["networks"].app.command("create")
@makes(networks.UPLOAD)
def network_create(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The network: .onnx, its weights in it")],
    licence: Annotated[str, typer.Option(help="An SPDX expression, or the name of a text")],
    provenance: Annotated[str, typer.Option(help="What it was trained on, in words")],
    name: Annotated[str | None, typer.Option(help="Default: the file's name")] = None,
    dp_ledger: Annotated[
        str | None, typer.Option(help="Where its own account of differential privacy is, if it learned from people")
    ] = None,
    idempotency_key: Repeatable = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Register a public network."""
    with connect(url, key) as client, console.status(f"Uploading {file.name}"):
        created = client.networks.upload(
            file,
            name=name,
            licence=licence,
            provenance=provenance,
            dp_ledger=dp_ledger,
            idempotency_key=idempotency_key,
        )
    show(created)


derive(
    "networks.list",
    line=lambda found: (
        f"{found.id}  {found.output_size:>6} features  {found.num_parameters:>12} parameters  {found.name}"
    ),
)


def _range(written: str | None, counts: bool) -> dict[str, float] | None:
    if written is None:
        if counts:
            raise typer.BadParameter("expected --target 0,MAX beside it", param_hint="--counts")
        return None
    try:
        low, high = map(float, written.split(","))
    except ValueError:
        raise typer.BadParameter("expected two numbers: --target 0,100", param_hint="--target") from None
    return {"min": low, "max": high} | ({"counts": True} if counts else {})


@GROUPS["datasets"].app.command("add")
@makes(additions.ADD)
def dataset_add(
    dataset_id: str,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows, as the dataset has them")],
    skip_suppressed: Skip = False,
    idempotency_key: Repeatable = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Add rows for slots of forgotten people; the models of the dataset learn again."""
    with connect(url, key) as client, _uploading(client, file, dataset_id, encoded=_has_network(client, dataset_id)):
        added = client.datasets.add(
            dataset_id, file, suppressed="skip" if skip_suppressed else "refuse", idempotency_key=idempotency_key
        )
    show(added)


derive(
    "datasets.list",
    line=lambda found: f"{found.id}  {found.num_records:>9} of {found.num_slots} rows  {found.name}",
)


@made(
    "models.create",
    Shape(
        positional=("dataset_id",),
        also={"evaluation_dataset_id": "--evaluation-dataset"},
        defaults={"name": "model"},
    ),
)
def model_create(
    asked: Asked, wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it has learned")] = True
) -> None:
    """Learn a model."""
    created = asked()
    if wait:
        show_when_over(asked.client.models, created.id)
    else:
        show(created)


derive(
    "models.list",
    line=lambda found: f"{found.id}  {found.status:<10} version {found.live_version}  {found.name}",
)


@made("models.audit")
def model_audit(
    asked: Asked,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it is done, and show its run")] = True,
) -> None:
    """Let many canaries be learned and forgotten, apart from the model's data; exit code 1 if that refutes anything."""
    found = asked()
    if not wait:
        show(found)
        return
    with bar() as progress:
        done = asked.client.models.wait_for_audit(found.id, progress=progress)
    show(done)
    if done is None or done.status is not RunStatus.PUBLISHED:
        raise typer.Exit(1)


@made("models.rehearse")
def model_rehearse(
    asked: Asked,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it is done, and show its report")] = True,
) -> None:
    """Draw people at random, forget them on a scratch copy, and show what that does; exit code 1 if it fails."""
    found = asked()
    if not wait:
        show(found)
        return
    with bar() as progress:
        done = asked.client.models.wait_for_rehearsal(found.model_id, found.id, progress=progress)
    show(done)
    if done.report is None:
        raise typer.Exit(1)


derive(
    "models.rehearsals",
    line=lambda found: f"{found.id}  {found.status:<10} {found.people:>5} people  {found.asked_at:%Y-%m-%d %H:%M}",
)


@GROUPS["models"].app.command("wait")
def model_wait(model_id: Id, url: Url = None, key: Key = None) -> None:
    """Wait, with a progress bar, until a model is live."""
    with connect(url, key) as client:
        show_when_over(client.models, model_id)


@GROUPS["models"].app.command("export-onnx")
def model_export_onnx(
    model_id: Id,
    to: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write it")],
    version: Annotated[int | None, typer.Option(help="Default: the live one")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Write a version as one ONNX file, from the columns of a record to its probabilities, which predicts as the
    gateway does. The copy of its weights is noted like any other."""
    from lethe import onnx

    with connect(url, key) as client:
        show(dataclasses.asdict(onnx.export(client, model_id, to, version=version)))


@GROUPS["deletion_requests"].app.command("wait")
def request_wait(request_id: Id, url: Url = None, key: Key = None) -> None:
    """Wait until a request has ended."""
    with connect(url, key) as client:
        show_when_over(client.deletion_requests, request_id)


def show_when_over(resource: Models | DeletionRequests, one: str) -> None:
    """Wait, with a progress bar, and show what became of it; exit code 1 if it came to nothing."""
    with bar() as progress:
        found = resource.wait(one, progress=progress)
    show(found)
    if isinstance(found, ModelOut) and found.status not in SERVED:
        raise typer.Exit(1)


derive(
    "runs.list",
    Shape(also={"model_id": "--model"}),
    line=lambda found: (
        f"{found.id}  {found.kind:<7} {found.status:<9} {found.steps_done:>7} of {found.steps_total} steps"
        f"  {in_words(to_json(found.audit))}"
        f"{'' if found.seconds_left is None else f'  about {found.seconds_left:,.0f} s left'}"
    ),
)


def _retires(path: str, what: str) -> None:
    """Add the command `retire`, which takes an id and asks first."""

    def retire(asked: Asked, yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False) -> None:
        if not yes:
            typer.confirm(f"Retire {asked.ids[0]}? {what} are destroyed for good.", abort=True, err=True)
        show(asked())

    made(path)(retire)


_retires("models.retire", "Its weights")
_retires("datasets.retire", "Its rows")
