"""Datasets, models and their versions: what exists, in which state."""
