"""Commands for those who run it: API keys, tenants, callbacks."""

import datetime
import json
from typing import Annotated, Any

import typer

from app.cli.output import console, new_group, show
from app.cli.remote import Key, Url, connect, of_one
from lethe.contract.policy import Policy
from lethe.contract.sets import DeliveryStatus, Scope

api_key = new_group("Who may call.")
tenant = new_group("The organisations of an installation, and how each handles requests.")
webhook = new_group("What receivers of callbacks were told.")
commands = new_group()
for name, group in (("key", api_key), ("tenant", tenant), ("webhook", webhook)):
    commands.add_typer(group, name=name)


@api_key.command("create")
def key_create(
    name: str,
    scope: Annotated[list[str], typer.Option(help="What it may do, such as requests:write; once for each")],
    days: Annotated[int | None, typer.Option(min=1, help="How long it lives; default: for ever")] = None,
    calls_per_minute: Annotated[int | None, typer.Option(min=1, help="Default: as every key")] = None,
    own_requests_only: Annotated[
        bool | None,
        typer.Option(
            "--own-requests-only/--all-requests",
            help="Which requests it sees. Default: its own, if it makes requests and may do nothing else",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Make a key, which is shown once."""
    expires_at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days) if days else None
    with connect(url, key) as client:
        made = client.api_keys.create(
            name=name,
            scopes=[Scope(one) for one in scope],
            expires_at=expires_at,
            calls_per_minute=calls_per_minute,
            own_requests_only=own_requests_only,
        )
        show(made)


@api_key.command("list")
def key_list(url: Url = None, key: Key = None) -> None:
    """All keys, newest first."""
    with connect(url, key) as client:
        for found in client.api_keys.list():
            ended = (
                "revoked" if found.revoked_at else f"until {found.expires_at:%F}" if found.expires_at else "in force"
            )
            used = f"used {found.last_used_at:%F}" if found.last_used_at else "never used"
            _line(f"{found.id}  {ended:<16}  {used:<15}  {','.join(found.scopes)}  {found.name}")


@api_key.command("rotate")
def key_rotate(
    key_id: str,
    overlap_seconds: Annotated[int, typer.Option(min=0, help="How long the old one goes on working")] = 0,
    url: Url = None,
    key: Key = None,
) -> None:
    """Make a key that may do the same as this one, which ends; the new one is shown once."""
    with connect(url, key) as client:
        show(client.api_keys.rotate(key_id, overlap_seconds=overlap_seconds))


@api_key.command("revoke")
def key_revoke(key_id: str, url: Url = None, key: Key = None) -> None:
    """From here on nobody gets in with it."""
    with connect(url, key) as client:
        client.api_keys.revoke(key_id)


@tenant.command("create")
def tenant_create(name: str, url: Url = None, key: Key = None) -> None:
    """Make a tenant, and the key of its first admin, which is shown once; for the operator."""
    with connect(url, key) as client:
        show(client.tenants.create(name=name))


@tenant.command("list")
def tenant_list(url: Url = None, key: Key = None) -> None:
    """All tenants, newest first; for the operator."""
    with connect(url, key) as client:
        for found in client.tenants.list():
            _line(f"{found.id}  {found.created_at:%F}  {found.name}")


@tenant.command("show")
def tenant_show(
    tenant_id: Annotated[str | None, typer.Argument(help="Default: that of the key")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """One tenant and its policy."""
    with connect(url, key) as client:
        show(client.tenants.get(tenant_id) if tenant_id else client.tenants.own())


@tenant.command("set")
def tenant_set(
    field: Annotated[list[str], typer.Argument(help="NAME=VALUE, such as auto_accept=false; VALUE is JSON, or text")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Change fields of the policy of one's own tenant; the others stay."""
    with connect(url, key) as client:
        show(client.tenants.set_policy(policy=Policy.model_validate(dict(_field(one) for one in field))))


@webhook.command("list")
def webhook_list(
    status: Annotated[str | None, typer.Option(help="pending, delivered, gone or dead")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """All deliveries, newest first."""
    with connect(url, key) as client:
        for found in client.webhooks.list(status=DeliveryStatus(status) if status else None):
            tried = f"{found.attempts} attempts" + (f", {found.error}" if found.error else "")
            _line(f"{found.id}  {found.status:<9}  {found.request_id}  {found.event}  {found.host}  {tried}")


of_one(
    webhook,
    "replay",
    "Send again what was delivered or given up.",
    lambda client: client.webhooks.replay,
)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("Expected NAME=VALUE, such as auto_accept=false.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _line(text: str) -> None:
    console.print(text, markup=False, highlight=False)
