"""Public networks at work: examined and run in a process of their own, by the gateway and by a caller's dry run."""
