"""Lethe from Python: `with Client(url, api_key) as lethe: lethe.deletion_requests.create(subject_id=...)`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    """Load the clients when they are asked for: proofs need neither HTTP nor pydantic."""
    if name in __all__:
        from lethe import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
