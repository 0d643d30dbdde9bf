"""Canary people in the trainings of trainers: planted, forgotten by the next training, and looked for in its result."""
