"""Commands about the lineage of a person's rows."""

from lethe.cli.derived import add_group, derive

add_group("lineage", "lineage", "Models, versions and copies that a person's rows fed.")
derive("lineage.of_request", group="deletion_requests", verb="lineage")
