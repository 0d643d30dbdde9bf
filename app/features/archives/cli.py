"""Commands that back up and restore an installation. They need no running service."""

from pathlib import Path
from typing import Annotated

import typer

from app import config, errors
from lethe.cli.gateway import bar, console, new_group

commands = new_group()
Archive = Annotated[Path, typer.Argument(dir_okay=False, help="Path of the sealed archive")]
KeyFile = Annotated[
    Path, typer.Option(dir_okay=False, help="Key that seals archives: 64 hex digits; store it apart from the archives")
]


@commands.command()
def backup(archive: Archive, key_file: KeyFile) -> None:
    """Back up everything except weights while the service is running. The key file is created if it is missing."""
    from app import installations
    from app.features.archives import service

    with installations.opened(config.Settings()) as installation, bar() as progress:
        saved = service.back_up(installation, archive, key_file=key_file, progress=progress)
    console.print(
        f"{archive}: {saved.num_bytes:,} bytes, {saved.num_datasets} datasets, as of {saved.created_at:%F %T} UTC"
    )
    console.print(f"It opens with {key_file}, which must not lie beside it: whoever destroys that destroys the backup.")


@commands.command()
def restore(
    archive: Archive,
    key_file: KeyFile,
    tombstones: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Journal of the people who have asked to be forgotten since")
    ] = None,
    no_tombstones: Annotated[
        bool, typer.Option("--no-tombstones", help="Restore without: people forgotten since the backup come back")
    ] = False,
    lost_versions: Annotated[
        int | None,
        typer.Option(min=0, help="Without tombstones: maximum number of versions of any model published since"),
    ] = None,
) -> None:
    """Restore a backup into an empty installation, and forget again everyone who has asked to be forgotten since."""
    from app.features.archives import restoring

    if no_tombstones == (tombstones is not None):
        raise errors.BackupRefused("Name the tombstones with --tombstones FILE; who has none says --no-tombstones.")
    if no_tombstones and lost_versions is None:
        raise errors.BackupRefused(
            "Say with --lost-versions how many versions of any model were published since the backup, at most: what "
            "they gave away is counted."
        )
    if no_tombstones:
        console.print(
            "Without tombstones: whoever asked to be forgotten since the backup IS BACK, and nobody knows who."
        )
        console.print("Find out who asked, from your own records, and ask again for each of them before you serve.")
    with bar() as progress:
        restored = restoring.restore(
            config.Settings(),
            archive,
            key_file=key_file,
            remembered_in=tombstones,
            lost_versions=lost_versions or 0,
            progress=progress,
        )
    console.print(f"Restored as of {restored.about.created_at:%F %T} UTC: {restored.num_datasets} datasets.")
    requests = restored.requests
    console.print(f"{requests.made} requests came after that and are open again; {requests.changed} had changed.")
    console.print(
        f"{restored.num_models} models have no weights: they learn again when a worker runs, after all that is erased."
    )
    roles = ", ".join(f"{role} {count}" for role, count in restored.people.items()) or "nobody"
    console.print(
        f"Can log in as of the backup: {roles}. Who was disabled, and which keys were revoked, since then "
        "works again: review them before you serve."
    )
