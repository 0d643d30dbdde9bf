"""The installation in force: its settings, its versions, and whether it is ready. For operators."""

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import Any

from fastapi import Response
from pydantic import SecretStr

from app.api import operations, tenants
from app.config import Settings
from app.dashboard import pages
from app.dashboard.languages import marked
from app.dashboard.request_context import TheContext
from app.db import migrate
from lethe.contract.operations import ReadyOut

router = pages.new_router()

_MAY_HOLD_SECRETS = {"store_url", "otlp_endpoint"}
"""Addresses into which people write passwords."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A setting. `value`: None where there is none; `is_secret`: there is one, and it is not shown."""

    variable: str
    value: str | None
    is_secret: bool
    is_changed: bool
    means: str


@router.get("/settings")
def show_settings(context: TheContext) -> Response:
    """Every setting with its value, and what it is for."""
    context.require(tenants.list_tenants)
    installation = context.call.installation
    return context.page(
        "settings.html",
        settings=in_force(installation.settings),
        ready=ReadyOut.model_validate_json(bytes(operations.ready(installation).body)),
        versions={
            "Lethe": importlib.metadata.version("lethe-server"),
            marked("Schema of the database"): ", ".join(migrate.heads()),
            marked("Database"): installation.database.name,
            "Python": platform.python_version(),
            marked("System"): f"{platform.system()} {platform.machine()}",
        },
    )


def in_force(settings: Settings) -> list[InForce]:
    """In the order of the documentation."""
    return [
        _in_force(name, getattr(settings, name), field.default, field.description or "")
        for name, field in Settings.model_fields.items()
    ]


def _in_force(name: str, value: Any, default: Any, means: str) -> InForce:
    is_secret = isinstance(value, SecretStr) or (name in _MAY_HOLD_SECRETS and "@" in str(value))
    return InForce(
        variable=f"LETHE_{name.upper()}",
        value=None if is_secret or value in (None, "") else f"{value:.12g}" if isinstance(value, float) else str(value),
        is_secret=is_secret,
        is_changed=value != default,
        means=means,
    )
