"""Commands that run the service."""

import gc
from typing import Annotated

import typer

from app.config import Settings
from lethe.cli.gateway import console, new_group
from lethe.contract.sets import WorkerState

commands = new_group()


def _of_a_service() -> Settings:
    """Harden this process for personal data, disable garbage collection during startup, and return the settings."""
    from app import hardening, telemetry

    settings = Settings()
    telemetry.configure(settings.log_level)
    hardening.ensure()
    gc.disable()
    return settings


@commands.command()
def up(
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Number of workers (LETHE_WORKERS); the second handles only deletions"),
    ] = None,
) -> None:
    """Run the gateway and workers in one command (SQLite, no broker) until Ctrl-C."""
    settings = _of_a_service()
    if workers is not None:
        settings = settings.model_copy(update={"workers": workers})
    # Imported after hardening, which may have re-executed the process.
    from app import supervisor

    def ready(address: str) -> None:
        console.print(f"Lethe is at [bold]{address}[/] (API documentation: {address}/docs)")
        console.print(f"Admin key:  {settings.resolved_admin_key_file()}")

    supervisor.up(settings, on_ready=ready)


@commands.command()
def serve() -> None:
    """Run only the gateway; workers: `celery -A worker.celery_app worker --pool threads --concurrency 1` and `beat`."""
    settings = _of_a_service()
    from app import installations, supervisor

    installations.set_up(settings)
    supervisor.serve(settings, listener=None, on_ready=lambda: console.print("Lethe's gateway is up."))


@commands.command("serve-accounting")
def serve_accounting() -> None:
    """Run only the accounting service, with read-only access to a database that another command has set up."""
    settings = _of_a_service()
    from app import accounting_main, installations, supervisor

    # Report in one line if the installation cannot be opened.
    with installations.opened(settings, read_only=True):
        pass
    supervisor.serve(
        settings,
        listener=None,
        on_ready=lambda: console.print("Lethe's accounting is up."),
        create=accounting_main.create_app,
    )


@commands.command()
def migrate(
    grant_reader: Annotated[
        str | None, typer.Option(help="PostgreSQL role to grant read access to what the accounting service reads")
    ] = None,
) -> None:
    """Migrate the database to this release's schema."""
    from app import installations

    installations.set_up(Settings(), reader_role=grant_reader)
    console.print("The database has this release's schema.")


@commands.command("rotate-key")
def rotate_key() -> None:
    """Rewrap every data key under a new key-encryption key and destroy the old one; the service may be running."""
    from app import installations

    installations.rotate_key_encryption_key(Settings())
    console.print("Every data key is wrapped under a new key-encryption key; the old one is destroyed.")


health = new_group("Container health checks: exit with 0 if the processes running here are healthy, otherwise with 1.")
commands.add_typer(health, name="health")


@health.command("worker")
def health_worker() -> None:
    """Check that a worker on this host sent a heartbeat in the last minute. A worker that dies during startup sends
    none."""
    from app import heartbeat

    alive = heartbeat.this_host_is_alive(Settings().data_dir)
    console.print((WorkerState.ALIVE if alive else WorkerState.SILENT).value)
    raise typer.Exit(0 if alive else 1)
