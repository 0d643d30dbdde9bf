"""Canary people in trainings, who are planted, forgotten by the next training, and looked for in its result."""
