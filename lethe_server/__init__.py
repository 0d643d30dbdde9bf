"""The server of Lethe as an installed application: its folders are inside this one, under no name that others use.

A customer's own `app` stays as it is: only processes of the server see these folders as `app`, `worker`, `migrations`.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_INSTALLED = Path(__file__).parent
_FOLDER = str(_INSTALLED if (_INSTALLED / "app").is_dir() else _INSTALLED.parent)
"""Folder that contains the server's folders; in a checkout it is the parent folder."""

if _FOLDER not in sys.path:
    sys.path.insert(0, _FOLDER)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_FOLDER, os.environ.get("PYTHONPATH")]))  # for what it starts


def __getattr__(name: str) -> Any:
    """Return all commands of the server, or those of its services, which start without loading the others."""
    if name == "services":
        # Before anything else is imported, because a re-executed program repeats its imports.
        if sys.argv[1:2] != ["health"] and sys.argv[1:] == sys.orig_argv[2:]:
            import_module("app.hardening").re_executed()
        return import_module("app.cli.service").commands
    if name == "commands":
        return _commands()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _commands() -> Any:
    from app.cli import chains, service
    from lethe import sockets
    from lethe.cli.gateway import new_group

    commands = new_group()
    for part in (service, chains, *sockets.modules("app.features", "cli")):
        commands.registered_commands += part.commands.registered_commands
        commands.registered_groups += part.commands.registered_groups
    return commands
