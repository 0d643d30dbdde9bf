"""Predictions of records by the live version of a model."""
