"""Public networks at work: examined and run in a separate process, by the gateway and by a caller's dry run."""
