"""The settings, the versions and the readiness of the installation, for operators."""

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import Any

from fastapi import Response
from pydantic import SecretStr

from app.api import operations, tenants
from app.config import Settings
from app.db import migrate
from app.features.desk import rendering as pages
from app.features.desk.languages import marked
from app.features.desk.request_context import TheContext
from lethe.contract.overview import ReadyOut

router = pages.new_router()

_MAY_HOLD_SECRETS = {"store_url", "otlp_endpoint"}
"""Settings whose URLs may contain a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A setting in force. `value` is None if the setting is empty, or if it is set and secret (`is_secret`)."""

    variable: str
    value: str | None
    is_secret: bool
    is_changed: bool
    means: str


@router.get("/settings")
def show_settings(context: TheContext) -> Response:
    """Show every setting with its value and its description."""
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
    """Return all settings in the order of the documentation."""
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
