"""Hooks of the `networks` feature."""

from app.catalogue.datasets import NetworkKeeper
from app.features.networks import service

NETWORKS = (
    NetworkKeeper(
        named=service.named_by_id, opened=service.opened, content=service.content_by, linearised=service.linearised
    ),
)
