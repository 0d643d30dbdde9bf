"""Assembly of the command `lethe`: commands written by hand, generated from the contract, or added by the server."""

import functools
from importlib.metadata import entry_points

import typer

from lethe import sockets
from lethe.cli import commands, derived, gateway

BY_HAND = (commands, *sockets.modules("lethe.features", "cli"))
"""Modules that add their commands to the groups when they are imported, including each feature's `cli`."""

PLUGINS = "lethe.commands"
"""Entry point group; each entry is a `typer.Typer` whose commands are added."""


@functools.cache
def command_line() -> typer.Typer:
    """Return the command line with all installed commands."""
    derived.derive_the_rest()
    root = gateway.new_group("The right to be forgotten for machine-learning models.")
    for group in derived.GROUPS.values():
        # A group without commands is about a resource of features that are not installed.
        if group.app.registered_commands:
            root.add_typer(group.app, name=group.name)
    for point in entry_points(group=PLUGINS):
        _plug_in(root, point.load())
    return root


def _plug_in(root: typer.Typer, commands: typer.Typer) -> None:
    """Add commands to the root, merging command groups into existing groups with the same names."""
    root.registered_commands += commands.registered_commands
    for info in commands.registered_groups:
        assert info.typer_instance is not None
        own = next((group.app for group in derived.GROUPS.values() if group.name == info.name), None)
        if own is not None:
            own.registered_commands += info.typer_instance.registered_commands
        else:
            root.registered_groups.append(info)
