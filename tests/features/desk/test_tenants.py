"""Tenants on pages: one's own policy, issuers and agents; and, for operators, all tenants."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.features.together.test_authorisation import ED25519, JWK
from tests.tables import each

Get = Callable[[str], Any]


def _filled(page: str) -> dict[str, str | list[str]]:
    """Return the values of the policy form as the page shows them."""
    form = re.search(r'(?s)action="/admin/tenant/policy".*?</form>', page)
    assert form
    fields: dict[str, str | list[str]] = dict(
        re.findall(r'<input id="[^"]*" name="(\w+)"[^>]* value="([^"]*)"', form[0])
    )
    for name, options in re.findall(r'(?s)<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', form[0]):
        fields[name] = re.findall(r'value="([^"]*)" selected', options)
    fields["opendsr_identities"] = re.findall(r'name="opendsr_identities" value="(\w+)" checked', form[0])
    fields |= dict(re.findall(r'<input name="(\w+_\d+)" value="([^"]*)"', form[0]))
    return fields


def test_a_policy_is_changed(officer: Browser, get: Get) -> None:
    """Saving the form changes only the values that differ from the current policy, and the audit log names only those
    values."""
    before = get("/tenant")["policy"]
    row = {"regulation_0": "lgpd", "days_0": "15", "may_pause_0": "yes"}
    changed = {"auto_accept": "no", "retain_requests_days": "400", "grace_seconds": "2", "grace_seconds_unit": "hours"}
    sent = _filled(officer.get("/admin/tenant").text) | changed | row
    review = officer.post("/admin/tenant/policy", **sent)
    assert review.status_code == 200
    assert re.search(r">Grace seconds</th><td>0 seconds</td><td>2 hours<", review.text)
    assert re.search(r">Regulation lgpd</th><td>not there</td><td>15 days, the clock may pause<", review.text)
    assert get("/tenant")["policy"] == before
    answer = officer.post("/admin/tenant/policy", **sent, confirmed="yes")
    assert answer.headers["location"] == "/admin/tenant?done=policy", answer.text
    after = get("/tenant")["policy"]
    assert (after["auto_accept"], after["retain_requests_days"], after["grace_seconds"]) == (False, 400, 7200)
    assert after["regulations"]["lgpd"]["days"] == 15
    fields = {"auto_accept", "retain_requests_days", "grace_seconds", "regulations"}
    assert {name for name in after if after[name] != before[name]} == fields
    entry = get("/audit-log?action=tenant.policy_changed")["items"][0]
    assert entry["detail"]["policy"].keys() == fields
    page = officer.get("/admin/tenant").text
    assert "Retain requests days: 400 days" in page
    assert _filled(page)["regulation_0"] == "lgpd"
    emptied = officer.post("/admin/tenant/policy", **(_filled(page) | {"regulation_0": ""}))
    assert re.search(r">Regulation lgpd</th><td>15 days[^<]*</td><td>not there<", emptied.text)
    nameless = officer.post("/admin/tenant/policy", **(_filled(page) | {"days_1": "15"}))
    assert "Name each regulation." in nameless.text
    assert 'name="days_1" value="15"' in nameless.text


def test_controller_and_contact_are_set(officer: Browser, get: Get, forget: Callable[..., Any]) -> None:
    """Controller and contact are previewed before they are saved, and then appear on the reply's page. Clearing them
    removes them. The history records that they were set, but not their values."""
    request_id = forget("p1")["id"]
    names = {"controller": "Acme & Sons Ltd", "contact": "privacy@example.com, Somewhere 1"}
    sent = _filled(officer.get("/admin/tenant").text) | names
    review = officer.post("/admin/tenant/policy", **sent).text
    assert re.search(r">Controller</th><td>none</td><td>Acme &amp; Sons Ltd<", review)
    assert officer.post("/admin/tenant/policy", **sent, confirmed="yes").status_code == 303
    assert {name: get("/tenant")["policy"][name] for name in names} == names
    history = officer.get("/admin/tenant").text.partition('id="history"')[2]
    assert "Controller: set; Contact: set<" in history
    assert "privacy@example.com" not in history
    reply = officer.get(f"/admin/requests/{request_id}/reply?language=fr").text
    assert "Responsable du traitement : Acme &amp; Sons Ltd" in reply
    assert "privacy@example.com, Somewhere 1" in reply
    emptied = _filled(officer.get("/admin/tenant").text) | dict.fromkeys(names, "")
    assert officer.post("/admin/tenant/policy", **emptied, confirmed="yes").status_code == 303
    assert "Acme" not in officer.get(f"/admin/requests/{request_id}/reply").text


def test_an_unchanged_policy_is_not_recorded(officer: Browser, get: Get) -> None:
    """Submitting the form without a change adds nothing to the audit log."""
    before = get("/tenant")
    assert officer.post("/admin/tenant/policy", **_filled(officer.get("/admin/tenant").text)).status_code == 303
    assert get("/tenant") == before
    assert get("/audit-log?action=tenant.policy_changed")["items"] == []


@each(
    ("field", "value"),
    [
        ("grace_seconds", "-1"),
        ("grace_seconds", "soon"),
        ("retain_details_days", ""),
        ("time_zone", "Atlantis"),
        ("regulations", "LGPD!"),
        ("drp_verification_url", "http://plain.example"),
        ("controller", "<b>Acme</b>"),
        ("contact", "privacy@example.com\nSomewhere 1"),
    ],
)
def test_an_invalid_policy_is_refused(officer: Browser, get: Get, field: str, value: str) -> None:
    """An invalid policy is refused with an error that names the field. The form keeps its values, and the old policy
    stays in force."""
    before = get("/tenant")
    written = {"regulation_0": value, "days_0": "15"} if field == "regulations" else {field: value}
    answer = officer.post("/admin/tenant/policy", **(_filled(officer.get("/admin/tenant").text) | written))
    assert answer.status_code == 422
    assert f'title="{field}' in answer.text
    assert f'id="{field}-fault"' in answer.text
    assert html.escape(value).replace("&quot;", "&#34;") in answer.text
    assert get("/tenant") == before


def test_a_business_id_needs_a_claim(officer: Browser, get: Get) -> None:
    """The form refuses a business id without the claim that identifies the person, and shows an error at the claim's
    field. It accepts a business id together with a claim."""
    form = _filled(officer.get("/admin/tenant").text) | {"drp_business_id": "SHOP", "confirmed": "yes"}
    answer = officer.post("/admin/tenant/policy", **form)
    assert answer.status_code == 422
    assert 'id="drp_claim-fault"' in answer.text
    assert officer.post("/admin/tenant/policy", **(form | {"drp_claim": "customer_id"})).status_code == 303
    policy = get("/tenant")["policy"]
    assert (policy["drp_business_id"], policy["drp_claim"]) == ("SHOP", "customer_id")


def test_issuers_and_agents_are_added_and_deleted(officer: Browser, get: Get) -> None:
    """Issuers and agents are added, listed and deleted through forms. A duplicate is refused."""
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


def test_operators_create_tenants(officer: Browser, gateway: TestClient) -> None:
    """A tenant's first key is shown once and works. A second tenant with the same name is refused."""
    answer = officer.post("/admin/tenants", name="acme")
    assert answer.status_code == 201
    [key] = set(re.findall(r"lethe_[\w-]{43}", answer.text))
    own = gateway.get("/v1/tenant", headers={"Authorization": f"Bearer {key}"}).json()
    assert own["name"] == "acme"
    assert own["id"] in officer.get("/admin/tenants").text
    assert officer.post("/admin/tenants", name="acme").status_code == 409
    assert officer.post("/admin/tenants", name="").status_code == 422


def test_time_limits_in_force_are_shown(officer: Browser, gateway: Any) -> None:
    """The policy's page shows each time limit with the law that sets it, or the tenant's own limit where one is set."""
    page = _lines(officer.get("/admin/tenant").text)
    assert "GDPR 1 month 2 months yes GDPR, Article 12(3)" in page
    assert "CCPA 45 days 45 days no CCPA regulations, Cal. Code Regs. tit. 11, § 7021(b)" in page
    own = {"gdpr": {"days": 20, "may_pause": False}, "appi": {"days": 14, "extension_days": 7}}
    gateway.patch("/v1/tenant", json={"policy": {"regulations": own}}).raise_for_status()
    page = _lines(officer.get("/admin/tenant").text)
    assert "GDPR 20 days no time no this policy, in place of GDPR, Article 12(3)" in page
    assert "Appi 14 days 7 days no this policy" in page


def _lines(page: str) -> str:
    """Return the text of a page in one line, without tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_officers_read_the_policy(somebody_with: Callable[..., Browser]) -> None:
    """An officer can read the policy and its time limits but has no form to change them. Viewers do not see the
    page."""
    decider = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ, Scope.REQUESTS_REVIEW)
    page = decider.get("/admin/tenant")
    assert page.status_code == 200
    assert "Time limits in force" in page.text
    assert "Values in force" in page.text
    assert "/tenant/policy" not in page.text
    assert "/tenant/issuers" not in page.text
    assert decider.post("/admin/tenant/policy", auto_accept="no").status_code == 403
    assert somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ).get("/admin/tenant").status_code == 403


def test_value_and_unit_are_on_one_line(officer: Browser) -> None:
    """In the policy form, each duration shows its value and its unit side by side under one visible label."""
    page = officer.get("/admin/tenant").text
    for name in ("grace_seconds", "report_seconds"):
        line = re.search(rf'(?s)<div class="with-unit">.{{0,80}}<label for="{name}">.*?</select>', page)
        assert line
        assert f'name="{name}_unit" aria-label=' in line[0]
