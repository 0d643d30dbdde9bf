"""Commands about datasets, models and runs that do more than print the answer of a call."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from lethe import Client, sockets
from lethe.cli.derived import GROUPS, CommandCall, derive, made
from lethe.cli.gateway import Key, Url, bar, connect, console, in_words, show
from lethe.cli.options import OptionShape
from lethe.client.deletion_requests import DeletionRequests
from lethe.client.http import Http
from lethe.client.models import SERVED, Models
from lethe.client.waiting import Progress
from lethe.contract.models import ModelOut
from lethe.contract.problems import Problem
from lethe.contract.sets import RunStatus
from lethe.reading import to_json

Id = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
_ENDS_WITHIN = 2.0
"""Seconds to wait for the last poll of an upload."""
WatchUpload = Callable[[Client, str, int, Progress, threading.Event], None]
"""Report progress of the upload with this name and number of bytes until the event is set."""
Skip = Annotated[bool, typer.Option(help="Leave out rows of people who asked to be forgotten")]
Repeatable = Annotated[
    str | None, typer.Option("--idempotency-key", help="With your own, another process may repeat the call")
]


def _parse_range(text: str) -> dict[str, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter("expected two numbers: --target 0,100", param_hint="--target") from None
    return {"min": low, "max": high}


@made(
    "datasets.upload",
    OptionShape(
        also={"network_id": "--network"},
        omit=("suppressed",),
        parsers={"classes": ("NO,YES", lambda text: text.split(",")), "target": ("MIN,MAX", _parse_range)},
    ),
)
def dataset_create(
    call: CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")],
    counts: Annotated[bool, typer.Option("--counts", help="With --target 0,MAX: the numbers are counts")] = False,
    skip_suppressed: Skip = False,
) -> None:
    """Upload rows."""
    _skip(call, skip_suppressed)
    if counts and "target" not in call.arguments:
        raise typer.BadParameter("expected --target 0,MAX beside it", param_hint="--counts")
    if counts:
        call.arguments["target"] |= {"counts": True}
    name = call.arguments.get("name", file.stem)
    with _uploading(call.client, file, name, encoded="network_id" in call.arguments):
        created = call(file)
    show(created)


def _skip(call: CommandCall, skip_suppressed: bool) -> None:
    if skip_suppressed:
        call.arguments["suppressed"] = "skip"


@contextmanager
def _uploading(client: Client, file: Path, name: str, *, encoded: bool) -> Iterator[None]:
    """Show that a file is being uploaded and, if rows pass through a network, how many have. `name` is the upload's."""
    watchers: tuple[WatchUpload, ...] = sockets.plugs("lethe.features", "cli", "WATCH_UPLOAD") if encoded else ()
    if not watchers:
        with console.status(f"Uploading {file.name}"):
            yield
        return
    ended = threading.Event()
    with bar() as progress:
        progress("uploading", 0, None)
        arguments = (client, name, file.stat().st_size, progress, ended)
        threads = [threading.Thread(target=watch, args=arguments, daemon=True) for watch in watchers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(timeout=_ENDS_WITHIN)


def _has_network(client: Client, dataset_id: str) -> bool:
    # A key may be allowed to add rows but not to read datasets.
    with suppress(Problem):
        return client.datasets.get(dataset_id).network_id is not None
    return False


@made("datasets.add", OptionShape(omit=("suppressed",)))
def dataset_add(
    call: CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows, as the dataset has them")],
    skip_suppressed: Skip = False,
) -> None:
    """Add rows for slots of forgotten people; the models of the dataset learn again."""
    _skip(call, skip_suppressed)
    [dataset_id] = call.ids
    with _uploading(call.client, file, dataset_id, encoded=_has_network(call.client, dataset_id)):
        added = call(file)
    show(added)


derive(
    "datasets.list",
    line="{item.id}  {item.num_records:>9} of {item.num_slots} rows  {item.name}",
)


@made(
    "models.create",
    OptionShape(
        positional=("dataset_id",),
        also={"evaluation_dataset_id": "--evaluation-dataset"},
        defaults={"name": "model"},
    ),
)
def model_create(
    call: CommandCall,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it has learned")] = True,
) -> None:
    """Learn a model."""
    created = call()
    if wait:
        show_when_over(call.client.models, created.id)
    else:
        show(created)


derive(
    "models.list",
    line="{item.id}  {item.status:<10} version {item.live_version}  {item.name}",
)


@made("models.audit")
def model_audit(
    call: CommandCall,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it is done, and show its run")] = True,
) -> None:
    """Test many canaries, apart from the model's data; exit code 1 if a test refutes a guarantee."""
    model = call()
    if not wait:
        show(model)
        return
    with bar() as progress:
        done = call.client.models.wait_for_audit(model.id, progress=progress)
    show(done)
    if done is None or done.status is not RunStatus.PUBLISHED:
        raise typer.Exit(1)


@GROUPS["models"].app.command("wait")
def model_wait(model_id: Id, url: Url = None, key: Key = None) -> None:
    """Wait, with a progress bar, until a model is live."""
    with connect(url, key) as client:
        show_when_over(client.models, model_id)


def show_when_over(resource: Models[Http] | DeletionRequests[Http], id_: str) -> None:
    """Wait with a progress bar and show the result; exit code 1 if the model cannot be served."""
    with bar() as progress:
        result = resource.wait(id_, progress=progress)
    show(result)
    if isinstance(result, ModelOut) and result.status not in SERVED:
        raise typer.Exit(1)


derive(
    "runs.list",
    OptionShape(also={"model_id": "--model"}),
    line=lambda run: (
        f"{run.id}  {run.kind:<7} {run.status:<9} {run.steps_done:>7} of {run.steps_total} steps"
        f"  {in_words(to_json(run.audit))}"
        f"{'' if run.seconds_left is None else f'  about {run.seconds_left:,.0f} s left'}"
    ),
)


def _retires(path: str, destroyed: str) -> None:
    """Add the command `retire`, which takes an id and asks for confirmation."""

    def retire(call: CommandCall, yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False) -> None:
        if not yes:
            typer.confirm(f"Retire {call.ids[0]}? {destroyed} are destroyed for good.", abort=True, err=True)
        show(call())

    made(path)(retire)


_retires("models.retire", "Its weights")
_retires("datasets.retire", "Its rows")
