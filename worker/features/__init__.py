"""Features. Each is a folder that plugs into the core through sockets (`lethe.sockets`). Its line here goes with it."""

FEATURES = ("brokers", "canary_tests", "gpu", "networks", "objective", "rehearsals")
