"""Lethe for Python: `with Client(url, api_key) as lethe: lethe.deletion_requests.create(subject_id=...)`."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.features.client import AsyncClient, Client  # type: ignore[import-not-found, unused-ignore]

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    """Load the clients on first use: proofs need neither HTTP nor pydantic.

    The clients offer every feature's calls, or only the core's if no features are installed.
    """
    if name in __all__:
        return getattr(import_module("lethe.features.client" if find_spec("lethe.features") else "lethe.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
