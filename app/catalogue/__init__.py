"""Catalogue: datasets, models and versions, and their states."""
