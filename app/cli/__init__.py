"""`lethe`: run the service, talk to it, verify what it says.

The parts of the service are imported by the commands that run them, so that the others answer at once.
"""

import sys
from typing import NoReturn

from pydantic import ValidationError

from app.cli import account, administration, backups, chains, lists, proofs, remote, requests, service
from app.cli.output import new_group
from lethe.contract.problems import Problem

requests.request.add_typer(lists.commands)
cli = new_group("The right to be forgotten for machine-learning models.")
for module in (service, remote, requests, account, proofs, chains, backups, administration):
    cli.add_typer(module.commands)


def main() -> None:
    """Entry point: a named condition ends in exit code 1 and one line."""
    try:
        cli()
    except Problem as error:
        _fail(str(error))
    except ValidationError as error:
        faults = [f"LETHE_{fault['loc'][0]!s}".upper() + f" {fault['msg']}" for fault in error.errors()]
        _fail(f"settings_invalid: {'; '.join(faults)}")
    except OSError as error:
        _fail(f"{type(error).__name__}: {error}")


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)
