"""`lethe`: run the service, talk to it, verify what it says.

The parts of the service are imported by the commands that run them, so that the others answer at once.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.client import CallFailed, Client
from app.config import Settings
from app.errors import CertificateInvalid, LetheError
from app.privacy.guarantees import Guarantee

cli = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="The right to be forgotten for models.")
dataset = typer.Typer(no_args_is_help=True, help="Rows that models learn from.")
model = typer.Typer(no_args_is_help=True, help="Models that can forget.")
request = typer.Typer(no_args_is_help=True, help="People who ask to be forgotten.")
certificate = typer.Typer(no_args_is_help=True, help="What was signed.")
ledger = typer.Typer(no_args_is_help=True, help="What was accounted for.")
for name, group in (
    ("dataset", dataset),
    ("model", model),
    ("request", request),
    ("certificate", certificate),
    ("ledger", ledger),
):
    cli.add_typer(group, name=name)

console = Console(soft_wrap=True)
Url = Annotated[str | None, typer.Option(envvar="LETHE_URL", help="Gateway; default: LETHE_HOST and LETHE_PORT.")]
Key = Annotated[str | None, typer.Option(envvar="LETHE_API_KEY", help="API key; default: the admin key file.")]


def main() -> None:
    """Entry point: a named condition ends in exit code 1 and one line."""
    try:
        cli()
    except LetheError as error:
        _fail(f"{error.code}: {error.detail}")
    except CallFailed as error:
        _fail(str(error))
    except ValidationError as error:
        faults = [f"LETHE_{fault['loc'][0]!s}".upper() + f" {fault['msg']}" for fault in error.errors()]
        _fail(f"settings_invalid: {'; '.join(faults)}")
    except OSError as error:
        _fail(f"{type(error).__name__}: {error}")


@cli.command()
def up() -> None:
    """Run gateway and worker as one command (SQLite, no broker); Ctrl-C ends it."""
    from app import supervisor

    settings = Settings()

    def ready(address: str) -> None:
        console.print(f"Lethe is at [bold]{address}[/] (API documentation: {address}/docs)")
        console.print(f"Admin key:  {settings.resolved_admin_key_file()}")

    supervisor.up(settings, on_ready=ready)


@cli.command()
def serve() -> None:
    """Run the gateway alone; workers are started with `celery -A worker.celery_app worker --pool solo --beat`."""
    from app import installation, supervisor

    settings = Settings()
    installation.set_up(settings)
    supervisor.serve(settings, listener=None, on_ready=lambda: console.print("Lethe's gateway is up."))


@cli.command()
def migrate() -> None:
    """Bring the database to this release's schema."""
    from app import installation

    installation.set_up(Settings())
    console.print("The database has this release's schema.")


@dataset.command("create")
def dataset_create(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")],
    name: Annotated[str | None, typer.Option(help="Default: the file's name")] = None,
    schema: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="The public schema (JSON)")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Upload rows."""
    with _client(url, key) as client:
        text = schema.read_text() if schema else None
        with console.status(f"Uploading {file.name}"):
            created = client.upload(file, name=name or file.stem, schema=text)
    _show(created)


@dataset.command("list")
def dataset_list(url: Url = None, key: Key = None) -> None:
    """All datasets, newest first."""
    with _client(url, key) as client:
        for found in client.pages("/v1/datasets"):
            console.print(f"{found['id']}  {found['num_records']:>9} of {found['num_slots']} rows  {found['name']}")


@dataset.command("show")
def dataset_show(dataset_id: str, url: Url = None, key: Key = None) -> None:
    """One dataset."""
    with _client(url, key) as client:
        _show(client.get(f"/v1/datasets/{dataset_id}"))


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
    with _client(url, key) as client:
        created = client.post("/v1/models", asked)
        _show(_wait_for_model(client, created["id"]) if wait else created)


@model.command("list")
def model_list(url: Url = None, key: Key = None) -> None:
    """All models, newest first."""
    with _client(url, key) as client:
        for found in client.pages("/v1/models"):
            console.print(f"{found['id']}  {found['status']:<10} version {found['live_version']}  {found['name']}")


@model.command("show")
def model_show(model_id: str, url: Url = None, key: Key = None) -> None:
    """One model: its mechanism, its guarantees, its progress."""
    with _client(url, key) as client:
        _show(client.get(f"/v1/models/{model_id}"))


@model.command("wait")
def model_wait(model_id: str, url: Url = None, key: Key = None) -> None:
    """Wait, with a progress bar, until a model is live."""
    with _client(url, key) as client:
        _show(_wait_for_model(client, model_id))


@model.command("relearn")
def model_relearn(model_id: str, url: Url = None, key: Key = None) -> None:
    """Learn again from scratch on the present data."""
    with _client(url, key) as client:
        _show(client.post(f"/v1/models/{model_id}/relearn"))


@model.command("weights")
def model_weights(model_id: str, version: int, to: Path, url: Url = None, key: Key = None) -> None:
    """Download the live version (safetensors)."""
    with _client(url, key) as client:
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
    with _client(url, key) as client:
        made = client.post("/v1/deletion-requests", {"subject_id": subject, "regulation": regulation})
        _show(_wait_for_request(client, made["id"]) if wait else made)


@request.command("show")
def request_show(request_id: str, url: Url = None, key: Key = None) -> None:
    """One request."""
    with _client(url, key) as client:
        _show(client.get(f"/v1/deletion-requests/{request_id}"))


@request.command("wait")
def request_wait(request_id: str, url: Url = None, key: Key = None) -> None:
    """Wait until a request has ended."""
    with _client(url, key) as client:
        _show(_wait_for_request(client, request_id))


@request.command("cancel")
def request_cancel(request_id: str, url: Url = None, key: Key = None) -> None:
    """Withdraw a request that no worker has taken yet."""
    with _client(url, key) as client:
        _show(client.post(f"/v1/deletion-requests/{request_id}/cancel"))


@request.command("certificate")
def request_certificate(request_id: str, to: Path, url: Url = None, key: Key = None) -> None:
    """Save a request's certificates, and beside them the public keys to verify them with (`TO.jwks.json`)."""
    with _client(url, key) as client:
        to.write_text(json.dumps(client.get(f"/v1/deletion-requests/{request_id}/certificate"), indent=2))
        keys = Path(f"{to}.jwks.json")
        keys.write_text(json.dumps(client.get("/.well-known/jwks.json"), indent=2))
    console.print(f"{to} and {keys}")


@certificate.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
    jwks: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The issuer's public keys")],
) -> None:
    """Verify certificates offline: the signature, and every number recomputed from the statement alone."""
    from app.accounting import certificates

    try:
        keys = json.loads(jwks.read_text())
    except (ValueError, RecursionError) as error:
        raise CertificateInvalid(f"{jwks} is not a JSON Web Key Set.") from error
    for compact, beside in _certificates_in(file):
        verified = certificates.verify(compact, keys)
        if beside is not None and beside != verified.statement:
            raise CertificateInvalid("The statement beside the JWS is not the signed one.")
        statement = verified.statement
        console.print(
            f"[green]valid[/]  {statement['certificate_id']}  request {statement['request']['id']}"
            f"  model {statement['model']['id']} version {statement['model']['version']}  key {verified.key_id[:12]}"
        )
        for guarantee in verified.guarantees:
            console.print(f"       {_in_words(guarantee)}")


@ledger.command("verify")
def ledger_verify() -> None:
    """Recompute every hash and every number of the ledger from its entries alone."""
    from sqlalchemy.exc import OperationalError

    from app.accounting import repository, verify
    from app.db import Database

    database = Database(Settings().resolved_database_url())
    try:
        with database.reading() as session:
            entries = repository.all_entries(session)
            report = verify.verify(entries, repository.all_versions(session))
    except OperationalError as error:
        _fail(f"unavailable: the database cannot be read ({error.orig}); is LETHE_DATA_DIR right?")
    finally:
        database.close()
    console.print(f"[green]valid[/]  {report.entries} entries of {report.models} models")
    for model_id, head in report.heads.items():
        console.print(f"       {model_id}  {head}")


def _client(url: str | None, key: str | None) -> Client:
    settings = Settings()
    if key is None:
        path = settings.resolved_admin_key_file()
        if not path.exists():
            _fail(f"unauthenticated: no API key; set LETHE_API_KEY (there is no {path})")
        key = path.read_text().strip()
    return Client(url or f"http://{settings.host}:{settings.port}", key)


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


def _certificates_in(file: Path) -> list[tuple[str, Any]]:
    """Each JWS of a file, of which there is at least one, with the statement that stands beside it, if any."""
    try:
        text = file.read_text()
        if not text.lstrip().startswith("{"):
            return [(text, None)]
        document = json.loads(text)
        found = [(one["jws"], one.get("statement")) for one in document.get("certificates", [document])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CertificateInvalid(f"{file} holds neither a compact JWS nor JSON with a 'jws'.") from error
    if not found or not all(isinstance(compact, str) for compact, _ in found):
        raise CertificateInvalid(f"{file} holds no certificate.")
    return found


def _in_words(guarantee: Guarantee) -> str:
    return f"{guarantee.notion:<10}  epsilon <= {guarantee.epsilon:.4g} at delta = {guarantee.delta:.3g}"


def _show(document: Any) -> None:
    console.print_json(json.dumps(document))


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)
