"""Requests by protocols for a tenant with an identity map: their identifiers are looked up by kind."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.features.protocols.agents import Agent, refusal as agent_refusal
from tests.features.protocols.controllers import Controller, identity, refusal

pytestmark = pytest.mark.usefixtures("with_signing_key")
Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
MAIL, PHONE = "Ada@example.org", "+49 30 901820"


@pytest.fixture
def mapped(gateway: TestClient) -> None:
    """Load a map that links an e-mail address and a phone number to the customer p1."""
    of_p1 = {"customer_id": "p1", "email": MAIL, "phone": PHONE}
    link = {"identifiers": [{"kind": kind, "id": text} for kind, text in of_p1.items()]}
    assert gateway.post("/v1/identities", json={"links": [link]}).status_code == 200


def only(get: Get) -> dict[str, Any]:
    """Return the only deletion request, as an officer sees it."""
    [request] = get("/deletion-requests")["items"]
    return get(f"/deletion-requests/{request['id']}")  # type: ignore[no-any-return]


@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize(
    "asked",
    [
        identity("Ada@EXAMPLE.org", kind="email"),
        identity(hashlib.sha256(MAIL.encode()).hexdigest().upper(), kind="email", form="sha256"),
        identity("p1"),
    ],
)
def test_a_controllers_request_reaches_the_persons_rows(
    asked: dict[str, str],
    controller: Controller,
    policy: Callable[..., None],
    new_dataset: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A controller can name a person by an e-mail address, its hash or a customer number. Each leads to the person's
    rows, and the person is forgotten. Repeating the call creates no second request."""
    new_dataset()
    policy(opendsr_identities=["controller_customer_id", "email"])
    receipt = controller.asked(subject_identities=[asked])
    again = controller.asked(subject_identities=[asked], subject_request_id=receipt["subject_request_id"])
    assert again["received_time"] == receipt["received_time"]
    assert work() == 1
    done = only(get)
    assert (done["status"], done["outcome"], done["identity_unknown"]) == ("completed", "forgotten", False)


@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize(
    ("claim", "value"), [("email", "Ada@EXAMPLE.org"), ("phone_number", "+4930901820"), ("customer_id", "p1")]
)
def test_an_agents_request_reaches_the_persons_rows(
    claim: str,
    value: str,
    agent: Agent,
    policy: Callable[..., None],
    new_dataset: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """An agent can name a person by an e-mail address, a phone number or a customer number. Each leads to the person's
    rows, and the person is forgotten. Repeating the message creates no second request."""
    new_dataset()
    policy(drp_business_id="BUSINESS", drp_claim=claim, grace_seconds=0)
    claims = {"email": None, claim: value, f"{claim}_verified": True, "agent-request-id": "mine"}
    asked = agent.exercised(**claims)
    assert agent.exercised(**claims)["request_id"] == asked["request_id"]
    assert work() == 1
    done = only(get)
    assert (done["status"], done["outcome"], done["identity_unknown"]) == ("completed", "forgotten", False)


@pytest.mark.usefixtures("mapped")
def test_a_person_missing_from_the_map_is_unknown(
    controller: Controller, agent: Agent, new_dataset: Make, policy: Callable[..., None], get: Get
) -> None:
    """A request for a person who is not in the identity map stays open with an unknown identity, instead of reporting
    that nothing is held. Controllers and agents cannot tell whether a person is in the map."""
    policy(opendsr_identities=["email"], drp_business_id="BUSINESS", drp_claim="email", report_seconds=3600)
    new_dataset()
    seen = []
    for mail in (MAIL, "nobody@example.org"):
        receipt = controller.asked(subject_identities=[identity(mail, kind="email")])
        seen.append((receipt["request_status"], agent.exercised(email=mail)["status"]))
    assert seen[0] == seen[1]
    requests = [get(f"/deletion-requests/{one['id']}") for one in get("/deletion-requests")["items"]]
    stated = [(one["status"], one["outcome"], one["identity_unknown"]) for one in requests]
    assert stated == [("accepted", None, True)] * 2 + [("accepted", None, False)] * 2
    assert get("/identities")["num_unknown"] == 2


@pytest.mark.usefixtures("mapped")
def test_a_malformed_address_is_refused_and_not_quoted(
    controller: Controller, agent: Agent, policy: Callable[..., None]
) -> None:
    """Text that cannot be an e-mail address or phone number is refused without being quoted, because it would match no
    person."""
    policy(opendsr_identities=["email"], drp_business_id="BUSINESS", drp_claim="phone_number")
    error = refusal(controller.ask(subject_identities=[identity("secret", kind="email")]))
    assert "expected an e-mail address" in str(error)
    told = agent_refusal(agent.exercise(phone_number="secret", email=None), 400)
    assert "country code" in told["message"]
    assert "secret" not in str(error) + str(told)
