"""Features: each a folder that joins the core by sockets (`lethe.sockets`) and can be deleted with its line here."""

FEATURES = (
    "archives",
    "calculator",
    "insight",
    "leaving",
    "lineage",
    "networks",
    "people",
    "desk",
    "protocols",
    "quality",
    "rehearsals",
    "webhooks",
)
"""Names of the installed features, each after those whose tables it refers to."""
