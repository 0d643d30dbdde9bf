"""Commands about the lineage of a person's rows."""

from lethe.cli.derived import add_group, derive

add_group("lineage", "lineage", "Models, versions and copies trained on a person's rows.")
derive("lineage.of_request", group="deletion_requests", verb="lineage")
