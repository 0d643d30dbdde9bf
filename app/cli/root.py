"""Commands of the server, available in `lethe` if the server is installed.

Parts of the service are imported by the commands that need them, so that other commands start quickly.
"""

from app.cli import chains, service
from lethe import sockets
from lethe.cli.gateway import new_group

commands = new_group()
for part in (service, chains, *sockets.modules("app.features", "cli")):
    commands.registered_commands += part.commands.registered_commands
    commands.registered_groups += part.commands.registered_groups
