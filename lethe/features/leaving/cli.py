"""Commands about reasons for leaving."""

from lethe.cli.derived import add_group

add_group("leaving_reasons", "leaving-reason", "Reasons for leaving, from randomised answers.")
