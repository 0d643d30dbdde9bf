"""Command that exports a ledger with the keys to verify it. The other commands are generated from the operations."""

import json
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.derived import VERBS, CommandCall, add_group, made
from lethe.cli.gateway import console
from lethe.client import files

VERBS |= {"ledger.verify": "verdict", "audit_log.verify": "verdict"}
add_group("audit_log", "audit", "Log of actions and their actors.")


@made("ledger.export")
def ledger_export(
    call: CommandCall, to: Annotated[Path, typer.Argument(dir_okay=False, help="File to write to")]
) -> None:
    """Write the whole ledger to a file, and the public keys for offline verification next to it (`TO.jwks.json`)."""
    files.write(to, call())
    keys = Path(f"{to}.jwks.json")
    keys.write_text(json.dumps(call.client.certificates.public_keys(), indent=2))
    console.print(f"{to} and {keys}")
