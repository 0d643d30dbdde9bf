"""Features: folders that join the core by sockets (`lethe.sockets`) and can be deleted with their line here."""

FEATURES = (
    "brokers",
    "canary_tests",
    "gpu",
    "networks",
    "objective",
    "rehearsals",
)
