"""A model's live version in an MLflow registry: `register(client, model_id, name=...)`."""

from lethe.features.handover.mlflow import CopiesLeftBehind, NameTaken, NameUnusable, NotServable, Registered, register  # type: ignore[import-not-found, unused-ignore]

__all__ = ["CopiesLeftBehind", "NameTaken", "NameUnusable", "NotServable", "Registered", "register"]
