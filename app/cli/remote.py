"""Commands that talk to a gateway."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.output import console, new_group, show
from app.client import Client
from app.config import Settings
from app.errors import Unauthenticated

dataset = new_group("Rows that models learn from.")
model = new_group("Models that can forget.")
request = new_group("People who ask to be forgotten.")
commands = new_group()
for name, group in (("dataset", dataset), ("model", model), ("request", request)):
    commands.add_typer(group, name=name)

Url = Annotated[str | None, typer.Option(envvar="LETHE_URL", help="Gateway; default: LETHE_HOST and LETHE_PORT.")]
Key = Annotated[str | None, typer.Option(envvar="LETHE_API_KEY", help="API key; default: the admin key file.")]


@dataset.command("create")
def dataset_create(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")],
    name: Annotated[str | None, typer.Option(help="Default: the file's name")] = None,
    schema: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="The public schema (JSON)")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Upload rows."""
    with connect(url, key) as client:
        text = schema.read_text() if schema else None
        with console.status(f"Uploading {file.name}"):
            created = client.upload(file, name=name or file.stem, schema=text)
    show(created)


@dataset.command("list")
def dataset_list(url: Url = None, key: Key = None) -> None:
    """All datasets, newest first."""
    with connect(url, key) as client:
        for found in client.pages("/v1/datasets"):
            console.print(f"{found['id']}  {found['num_records']:>9} of {found['num_slots']} rows  {found['name']}")


@dataset.command("show")
def dataset_show(dataset_id: str, url: Url = None, key: Key = None) -> None:
    """One dataset."""
    with connect(url, key) as client:
        show(client.get(f"/v1/datasets/{dataset_id}"))


@model.command("create")
def model_create(
    dataset_id: str,
    name: Annotated[str, typer.Option()] = "model",
    epsilon: Annotated[float, typer.Option(help="Target: epsilon of every certificate")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Target: delta; default num_slots^-1.1")] = None,
    l2: Annotated[float | None, typer.Option(help="Regularisation")] = None,
    noise_scale: Annotated[float | None, typer.Option(help="sigma")] = None,
    evaluation_dataset: Annotated[str | None, typer.Option(help="Dataset to measure accuracy on")] = None,
    wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it has learned")] = True,
    url: Url = None,
    key: Key = None,
) -> None:
    """Learn a model."""
    asked = {
        "name": name,
        "dataset_id": dataset_id,
        "target": {"epsilon": epsilon} | ({"delta": delta} if delta is not None else {}),
        "l2": l2,
        "noise_scale": noise_scale,
        "evaluation_dataset_id": evaluation_dataset,
    }
    with connect(url, key) as client:
        created = client.post("/v1/models", asked)
        if wait:
            _show_learned(_wait_for_model(client, created["id"]))
        else:
            show(created)


@model.command("list")
def model_list(url: Url = None, key: Key = None) -> None:
    """All models, newest first."""
    with connect(url, key) as client:
        for found in client.pages("/v1/models"):
            console.print(f"{found['id']}  {found['status']:<10} version {found['live_version']}  {found['name']}")


@model.command("show")
def model_show(model_id: str, url: Url = None, key: Key = None) -> None:
    """One model: its mechanism, its guarantees, its progress."""
    with connect(url, key) as client:
        show(client.get(f"/v1/models/{model_id}"))


@model.command("wait")
def model_wait(model_id: str, url: Url = None, key: Key = None) -> None:
    """Wait, with a progress bar, until a model is live."""
    with connect(url, key) as client:
        _show_learned(_wait_for_model(client, model_id))


@model.command("relearn")
def model_relearn(model_id: str, url: Url = None, key: Key = None) -> None:
    """Learn again from scratch on the present data."""
    with connect(url, key) as client:
        show(client.post(f"/v1/models/{model_id}/relearn"))


@model.command("weights")
def model_weights(model_id: str, version: int, to: Path, url: Url = None, key: Key = None) -> None:
    """Download the live version (safetensors)."""
    with connect(url, key) as client:
        to.write_bytes(client.download(f"/v1/models/{model_id}/versions/{version}/weights"))


@request.command("submit")
def request_submit(
    subject_id: Annotated[str, typer.Argument(help="Who; '-' reads it from standard input")],
    regulation: Annotated[str, typer.Option(help="gdpr, ccpa or other")] = "gdpr",
    wait: Annotated[bool, typer.Option(help="Wait until it is completed")] = True,
    url: Url = None,
    key: Key = None,
) -> None:
    """Ask for a person to be forgotten everywhere."""
    subject = sys.stdin.readline().rstrip("\n") if subject_id == "-" else subject_id
    with connect(url, key) as client:
        made = client.post("/v1/deletion-requests", {"subject_id": subject, "regulation": regulation})
        show(_wait_for_request(client, made["id"]) if wait else made)


@request.command("show")
def request_show(request_id: str, url: Url = None, key: Key = None) -> None:
    """One request."""
    with connect(url, key) as client:
        show(client.get(f"/v1/deletion-requests/{request_id}"))


@request.command("wait")
def request_wait(request_id: str, url: Url = None, key: Key = None) -> None:
    """Wait until a request has ended."""
    with connect(url, key) as client:
        show(_wait_for_request(client, request_id))


@request.command("cancel")
def request_cancel(request_id: str, url: Url = None, key: Key = None) -> None:
    """Withdraw a request that no worker has taken yet."""
    with connect(url, key) as client:
        show(client.post(f"/v1/deletion-requests/{request_id}/cancel"))


@request.command("certificate")
def request_certificate(request_id: str, to: Path, url: Url = None, key: Key = None) -> None:
    """Save a request's certificates, and beside them the public keys to verify them with (`TO.jwks.json`)."""
    with connect(url, key) as client:
        to.write_text(json.dumps(client.get(f"/v1/deletion-requests/{request_id}/certificate"), indent=2))
        keys = Path(f"{to}.jwks.json")
        keys.write_text(json.dumps(client.get("/.well-known/jwks.json"), indent=2))
    console.print(f"{to} and {keys}")


def connect(url: str | None, key: str | None) -> Client:
    settings = Settings()
    if key is None:
        path = settings.resolved_admin_key_file()
        if not path.exists():
            raise Unauthenticated(f"no API key; set LETHE_API_KEY (there is no {path})")
        key = path.read_text().strip()
    return Client(url or f"http://{settings.host}:{settings.port}", key)


def _show_learned(found: Any) -> None:
    show(found)
    if found["status"] == "failed":
        raise typer.Exit(1)


def _wait_for_model(client: Client, model_id: str) -> Any:
    with _progress() as progress:
        task = progress.add_task("learning", total=None)

        def seen(found: Any) -> None:
            if steps := found["progress"]:
                progress.update(
                    task, description=found["status"], completed=steps["steps_done"], total=steps["steps_total"]
                )

        path = f"/v1/models/{model_id}"
        return client.wait(path, until=lambda found: found["status"] in ("live", "failed"), seen=seen)


def _wait_for_request(client: Client, request_id: str) -> Any:
    with _progress() as progress:
        task = progress.add_task("accepted", total=None)

        def seen(found: Any) -> None:
            done = sum(m["status"] not in ("pending", "running") for m in found["models"])
            progress.update(task, description=found["status"], completed=done, total=len(found["models"]) or None)

        path = f"/v1/deletion-requests/{request_id}"
        return client.wait(path, until=lambda found: found["status"] in ("completed", "cancelled"), seen=seen)


def _progress() -> Progress:
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
