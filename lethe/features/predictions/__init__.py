"""Predictions for records by a model's live version."""
