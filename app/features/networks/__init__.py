"""Public networks: registered after an examination (`encoders`), listed, opened to run, and deleted."""
