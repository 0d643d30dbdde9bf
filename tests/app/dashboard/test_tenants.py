"""Tenants on pages: the policy of one's own, issuers and agents; and, for operators, all of them."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lethe.contract.sets import Scope
from tests.app.api.test_authorisation import ED25519, JWK
from tests.app.dashboard.browsing import Browser

Get = Callable[[str], Any]


def _filled(page: str) -> dict[str, str | list[str]]:
    """The policy form as the page shows it."""
    form = re.search(r'(?s)action="/admin/tenant/policy".*?</form>', page)
    assert form
    fields: dict[str, str | list[str]] = dict(
        re.findall(r'<input id="[^"]*" name="(\w+)"[^>]* value="([^"]*)"', form[0])
    )
    for name, options in re.findall(r'(?s)<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', form[0]):
        fields[name] = re.findall(r'value="([^"]*)" selected', options)
    fields["opendsr_identities"] = re.findall(r'name="opendsr_identities" value="(\w+)" checked', form[0])
    fields["regulations"] = html.unescape(re.findall(r"(?s)<textarea[^>]*>(.*?)</textarea>", form[0])[0])
    return fields


def test_a_policy_is_changed(officer: Browser, get: Get) -> None:
    """What differs from the policy in force is changed, and the audit log names only that."""
    before = get("/tenant")["policy"]
    regulations = {"lgpd": {"days": 15, "may_pause": True}}
    changed = {"auto_accept": "no", "retain_requests_days": "400", "regulations": json.dumps(regulations)}
    answer = officer.post("/admin/tenant/policy", **(_filled(officer.get("/admin/tenant").text) | changed))
    assert answer.headers["location"] == "/admin/tenant?done=policy", answer.text
    after = get("/tenant")["policy"]
    assert (after["auto_accept"], after["retain_requests_days"]) == (False, 400)
    assert after["regulations"]["lgpd"]["days"] == 15
    assert {name for name in after if after[name] != before[name]} == changed.keys()
    entry = get("/audit-log?action=tenant.policy_changed")["items"][0]
    assert entry["detail"]["policy"].keys() == changed.keys()


def test_a_policy_that_is_sent_as_it_is(officer: Browser, get: Get) -> None:
    """A form that changes nothing leaves nothing in the audit log."""
    before = get("/tenant")
    assert officer.post("/admin/tenant/policy", **_filled(officer.get("/admin/tenant").text)).status_code == 303
    assert get("/tenant") == before
    assert get("/audit-log?action=tenant.policy_changed")["items"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("grace_seconds", "-1"),
        ("grace_seconds", "soon"),
        ("retain_details_days", ""),
        ("time_zone", "Atlantis"),
        ("regulations", "{"),
        ("regulations", '{"lgpd": {"days": "15"}}'),
        ("drp_verification_url", "http://plain.example"),
    ],
)
def test_a_policy_that_cannot_be(officer: Browser, get: Get, field: str, value: str) -> None:
    """It is refused by the name of its field, the form keeps what was written, and the old one stays."""
    before = get("/tenant")
    answer = officer.post("/admin/tenant/policy", **(_filled(officer.get("/admin/tenant").text) | {field: value}))
    assert answer.status_code == 422
    assert f'title="{field}' in answer.text
    assert f'id="{field}-fault"' in answer.text
    assert html.escape(value).replace("&quot;", "&#34;") in answer.text
    assert get("/tenant") == before


def test_issuers_and_agents(officer: Browser, get: Get) -> None:
    """Each is added by a form, shown, and deleted by one; one that is there already is refused."""
    issuer = {"issuer": "https://login.example", "audience": "lethe", "jwks": json.dumps({"keys": [JWK]})}
    agent = {"agent_id": "agent", "name": "Agent", "verify_key": ED25519}
    for kind, filled, path in (("issuers", issuer, "identity-issuers"), ("agents", agent, "agents")):
        assert officer.post(f"/admin/tenant/{kind}", **filled).status_code == 303
        [made] = get(f"/{path}")["items"]
        assert f"/admin/tenant/{kind}/{made['id']}/delete" in officer.get("/admin/tenant").text
        assert officer.post(f"/admin/tenant/{kind}", **filled).status_code == 409
        assert officer.post(f"/admin/tenant/{kind}/{made['id']}/delete").status_code == 303
        assert get(f"/{path}")["items"] == []
        assert officer.post(f"/admin/tenant/{kind}/{made['id']}/delete").status_code == 404
    assert officer.post("/admin/tenant/issuers", **(issuer | {"jwks": "{}"})).status_code == 422
    assert officer.post("/admin/tenant/agents", **(agent | {"verify_key": "x"})).status_code == 422


def test_operators_make_tenants(officer: Browser, gateway: TestClient) -> None:
    """A tenant's first key is shown once and opens it; a second tenant of its name is refused."""
    answer = officer.post("/admin/tenants", name="acme")
    assert answer.status_code == 201
    [key] = set(re.findall(r"lethe_[\w-]{43}", answer.text))
    own = gateway.get("/v1/tenant", headers={"Authorization": f"Bearer {key}"}).json()
    assert own["name"] == "acme"
    assert own["id"] in officer.get("/admin/tenants").text
    assert officer.post("/admin/tenants", name="acme").status_code == 409
    assert officer.post("/admin/tenants", name="").status_code == 422


def test_who_sees_tenants(somebody_with: Callable[..., Browser]) -> None:
    """An admin has the policy of their own tenant, an operator the list; neither is offered the other's page."""
    admin, operator = somebody_with(Scope.ADMIN), somebody_with(Scope.OPERATOR)
    assert admin.get("/admin/tenants").status_code == 403
    assert operator.get("/admin/tenant").status_code == 403
    assert 'href="/admin/tenants"' not in admin.get("/admin/tenant").text
    assert 'href="/admin/tenant"' not in operator.get("/admin/tenants").text
