"""Canary people: planted in one training run, forgotten by the next one, and looked for in its result."""
