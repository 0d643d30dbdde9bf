"""Commands for administrators of an installation: API keys and tenants."""

import datetime
import json
from typing import Annotated, Any, cast

import typer

from lethe.cli.derived import GROUPS, CommandCall, derive, made
from lethe.cli.gateway import Key, Url, connect, show
from lethe.cli.options import OptionShape
from lethe.client.methods import makes
from lethe.contract import tenants
from lethe.contract.api_keys import ApiKeyOut
from lethe.contract.tenants import Policy

tenant = GROUPS["tenants"].app


@made(
    "api_keys.create",
    OptionShape(
        positional=("name",), also={"scopes": "--scope", "own_requests_only": "--own-requests-only/--all-requests"}
    ),
)
def key_create(
    call: CommandCall,
    days: Annotated[int | None, typer.Option(min=1, help="How long it lives; default: for ever")] = None,
) -> None:
    """Create an API key, which is shown once."""
    if days is not None:
        call.arguments["expires_at"] = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    show(call())


def _of_key(key: ApiKeyOut) -> str:
    ended = "revoked" if key.revoked_at else f"until {key.expires_at:%F}" if key.expires_at else "in force"
    used = f"used {key.last_used_at:%F}" if key.last_used_at else "never used"
    return f"{key.id}  {ended:<16}  {used:<15}  {','.join(key.scopes)}  {key.name}"


derive("api_keys.list", line=_of_key)
derive("tenants.list", line="{item.id}  {item.created_at:%F}  {item.name}")
derive("tenants.create", OptionShape(positional=("name",)))


@tenant.command("show")
@makes(tenants.GET)
def tenant_show(
    tenant_id: Annotated[str | None, typer.Argument(help="Default: that of the key")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Show a tenant and its policy."""
    with connect(url, key) as client:
        show(client.tenants.get(tenant_id) if tenant_id else client.tenants.own())


@tenant.command("set")
@makes(tenants.CHANGE_OWN)
def tenant_set(
    field: Annotated[list[str], typer.Argument(help="NAME=VALUE, such as auto_accept=false; VALUE is JSON, or text")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Change fields of the own tenant's policy; other fields stay."""
    with connect(url, key) as client:
        show(client.tenants.set_policy(policy=cast(Policy, dict(map(_field, field)))))


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("Expected NAME=VALUE, such as auto_accept=false.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
