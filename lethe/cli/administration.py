"""Commands for those who run it: API keys, tenants, callbacks."""

import datetime
import json
from typing import Annotated, Any, cast

import typer

from lethe.cli.derived import GROUPS, Asked, derive, made
from lethe.cli.gateway import Key, Url, connect
from lethe.cli.options import Shape
from lethe.cli.output import show
from lethe.contract import tenants
from lethe.contract.api_keys import ApiKeyOut
from lethe.contract.policy import Policy
from lethe.contract.users import UserOut
from lethe.contract.webhook_deliveries import DeliveryOut
from lethe.methods import makes

tenant = GROUPS["tenants"].app


@made(
    "api_keys.create",
    Shape(positional=("name",), also={"scopes": "--scope", "own_requests_only": "--own-requests-only/--all-requests"}),
)
def key_create(
    asked: Asked,
    days: Annotated[int | None, typer.Option(min=1, help="How long it lives; default: for ever")] = None,
) -> None:
    """Make a key, which is shown once."""
    if days is not None:
        asked.given["expires_at"] = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    show(asked())


def _of_key(found: ApiKeyOut) -> str:
    ended = "revoked" if found.revoked_at else f"until {found.expires_at:%F}" if found.expires_at else "in force"
    used = f"used {found.last_used_at:%F}" if found.last_used_at else "never used"
    return f"{found.id}  {ended:<16}  {used:<15}  {','.join(found.scopes)}  {found.name}"


def _of_user(found: UserOut) -> str:
    used = f"seen {found.last_login_at:%F}" if found.last_login_at else "never seen"
    state = "disabled" if found.disabled_at else used
    return f"{found.id}  {found.role:<13}  {state:<15}  {found.email}  {found.name}"


def _of_delivery(found: DeliveryOut) -> str:
    tried = f"{found.attempts} attempts" + (f", {found.error}" if found.error else "")
    return f"{found.id}  {found.status:<9}  {found.request_id}  {found.event}  {found.host}  {tried}"


derive("api_keys.list", line=_of_key)
derive("webhooks.list", line=_of_delivery)
derive("tenants.list", line=lambda found: f"{found.id}  {found.created_at:%F}  {found.name}")
derive("tenants.create", Shape(positional=("name",)))
derive("users.list", line=_of_user)
derive("users.create", Shape(positional=("name", "email")))


@tenant.command("show")
@makes(tenants.GET)
def tenant_show(
    tenant_id: Annotated[str | None, typer.Argument(help="Default: that of the key")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """One tenant and its policy."""
    with connect(url, key) as client:
        show(client.tenants.get(tenant_id) if tenant_id else client.tenants.own())


@tenant.command("set")
@makes(tenants.CHANGE_OWN)
def tenant_set(
    field: Annotated[list[str], typer.Argument(help="NAME=VALUE, such as auto_accept=false; VALUE is JSON, or text")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Change fields of the policy of one's own tenant; the others stay."""
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
