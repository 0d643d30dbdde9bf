"""Catalogue: datasets, models and versions, and the states they can be in."""
