"""Features. Each is a folder that joins the core by sockets (`lethe.sockets`) and is deleted with its line here."""

FEATURES = (
    "brokers",
    "canary_tests",
    "gpu",
    "networks",
    "objective",
    "rehearsals",
)
