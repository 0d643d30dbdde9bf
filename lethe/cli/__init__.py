"""The command `lethe`: calls a gateway and verifies its certificates and ledgers. An installed server adds commands."""

import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NoReturn

from pydantic import ValidationError

from lethe.contract.problems import Problem

if TYPE_CHECKING:
    import typer

SERVICES = "lethe.services"
"""Entry point group. Each entry names a command that runs a service, and is the `typer.Typer` that contains it."""
_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "numpy": "verify",
    "scipy": "verify",
    "pyarrow": "tables",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "torch": "tangents",
    "safetensors": "onnx",
}
"""Extra of the distribution that installs each optional module."""


def main() -> None:
    """Run the command line. For a known error, print one line and exit with code 1."""
    try:
        _commands()()
    except Problem as error:
        _fail(error.line)
    except ValidationError as error:
        faults = [f"LETHE_{fault['loc'][0]!s}".upper() + f" {fault['msg']}" for fault in error.errors()]
        _fail(f"settings_invalid: {'; '.join(faults)}")
    except OSError as error:
        _fail(f"{type(error).__name__}: {error}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _fail(f"{package} is not installed; run: pip install 'lethe-sdk[{_EXTRAS[package]}]'")
    except Exception as error:
        # The class is SQLAlchemy's or SQLite's, which only a server's commands load.
        if type(error).__name__ != "OperationalError":
            raise
        _fail(f"database_unreadable: {getattr(error, 'orig', error)}; are LETHE_DATABASE_URL and LETHE_DATA_DIR right?")


def _commands() -> "typer.Typer":
    """Return all commands, or only those of the service that the first argument names; a service needs no client."""
    for point in entry_points(group=SERVICES):
        if [point.name] == sys.argv[1:2]:
            service: typer.Typer = point.load()
            return service
    from lethe.cli import root

    return root.command_line()


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)
