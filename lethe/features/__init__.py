"""Features: each a folder that joins the core by sockets (`lethe.sockets`) and can be deleted with its line here."""

FEATURES = (
    "calculator",
    "desk",
    "handover",
    "insight",
    "leaving",
    "lineage",
    "networks",
    "people",
    "protocols",
    "quality",
    "rehearsals",
    "tables",
    "theorems",
    "webhooks",
)
