"""Commands for California's delete list: load DROP files and people's hashes, and write response files."""

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.derived import VERBS, CommandCall, OptionShape, add_group, derive, made
from lethe.cli.gateway import Key, Url, connect, console, show
from lethe.features.identities.client import csv_rows
from lethe.features.identities.contract import CUSTOMER_ID

VERBS |= {"drop.load": "lines", "drop.load_file": "load", "drop.people": "hashes", "drop.load_people": "people"}
_app = add_group("drop", "drop", "California's delete list.")
derive("drop.opt_out", OptionShape(positional=("ids",)))
_File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="DROP's ZIP archive, or a CSV file from it.")]


@_app.command("load")
def load(file: _File, url: Url = None, key: Key = None) -> None:
    """Load a DROP download: the archive, or one of its files under its original name."""
    with connect(url, key) as client:
        show(client.drop.load_file(file))


@_app.command("people")
def people(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV file with one row per person.")],
    kind: Annotated[str, typer.Option(help="Column that identifies the person: a kind of identifier.")] = CUSTOMER_ID,
    url: Url = None,
    key: Key = None,
) -> None:
    """Load the hashes under which DROP lists can name people, from a CSV file that has any of the columns email, phone,
    maid, ctvid, first_name, last_name, birth_date, zip and vin. Only hashes are sent."""
    with connect(url, key) as client:
        show(client.drop.load_people(csv_rows(file), kind=kind, first=2, place="line"))


@made("drop.answer", OptionShape(positional=("file",)))
def answer(
    call: CommandCall,
    out: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder for the response files.")] = Path(),
) -> None:
    """Write the response to a DROP file, under the same name. Fails if any line has no status yet."""
    to = out / Path(call.arguments["file"]).name
    call(to)
    console.print(str(to), markup=False, highlight=False)
