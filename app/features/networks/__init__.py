"""Public networks: registered after an examination (`encoders`), listed, loaded for use, and deleted."""
