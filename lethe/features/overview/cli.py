"""The command `lethe overview`."""

from lethe.cli.derived import add_group

add_group("overview", "overview", "State of the tenant's requests, in numbers.")
