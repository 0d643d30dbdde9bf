"""The command `lethe`, put together: commands by hand, those made from the contract, and those of a server."""

import functools
from importlib.metadata import entry_points

import typer

from lethe.cli import account, administration, learning, lists, plans, proofs, requests, tables
from lethe.cli.derived import GROUPS, derive_the_rest
from lethe.cli.output import new_group

BY_HAND = (account, administration, learning, lists, plans, proofs, requests, tables)
"""Each adds its commands to the groups when it is imported."""

PLUGINS = "lethe.commands"
"""The group of entry points, each a `typer.Typer`, whose commands are added."""


@functools.cache
def command_line() -> typer.Typer:
    """All commands there are here."""
    derive_the_rest()
    root = new_group("The right to be forgotten for machine-learning models.")
    for group in GROUPS.values():
        root.add_typer(group.app, name=group.name)
    for point in entry_points(group=PLUGINS):
        _plug_in(root, point.load())
    return root


def _plug_in(root: typer.Typer, commands: typer.Typer) -> None:
    """Add commands, and those in groups to the groups of the same names."""
    root.registered_commands += commands.registered_commands
    for info in commands.registered_groups:
        assert info.typer_instance is not None
        own = next((group.app for group in GROUPS.values() if group.name == info.name), None)
        if own is not None:
            own.registered_commands += info.typer_instance.registered_commands
        else:
            root.registered_groups.append(info)
