"""Features: each a folder that joins the core by sockets (`lethe.sockets`) and can be deleted with its line here."""

FEATURES = (
    "additions",
    "archives",
    "brokers",
    "buckets",
    "calculator",
    "canary_tests",
    "identities",
    "insight",
    "leaving",
    "lineage",
    "lists",
    "monitoring",
    "networks",
    "overview",
    "parquet",
    "people",
    "desk",
    "protocols",
    "quality",
    "rehearsals",
    "webhooks",
    "systems",
    "stores",
)
"""Names of the installed features, each after those whose tables it refers to."""
