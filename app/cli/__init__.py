"""The server's commands, which `lethe` has where the server is installed: run it, and verify what its database says.

The parts of the service are imported by the commands that run them, so that the others answer at once.
"""

from app.cli import backups, chains, service
from lethe.cli.output import new_group

commands = new_group()
for part in (service.commands, chains.commands, backups.commands):
    commands.registered_commands += part.registered_commands
    commands.registered_groups += part.registered_groups
