"""Canary people in trainings: planted, forgotten by the next training, and looked for in its result."""
