"""Public networks on record: taken once they were examined (`lethe.encoders`), found, opened to run, and let go of."""
