"""OpenAPI document of the gateway, built on first use and cached per process."""

import functools
from typing import Any

from app.config import Settings
from app.main import create_app


@functools.cache
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


@functools.cache
def operations() -> dict[str, dict[str, Any]]:
    """Return the operations of the OpenAPI document, keyed by method and path."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }
