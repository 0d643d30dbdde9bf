"""Canary people: planted in one training run, forgotten by the next, and searched for in the resulting artefact."""
