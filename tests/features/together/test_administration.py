"""Administration through the SDK against a live gateway, as far as no command of the command line does the same."""

import pytest
from joserfc.jwk import OKPKey
from pydantic import BaseModel

from lethe import Client
from lethe.contract.api_keys import NewApiKeyOut
from lethe.contract.deletion_requests import DeletionRequestOut, RejectionOut
from lethe.contract.tenants import NewTenantOut
from lethe.errors import NotFound
from lethe.features.desk.contract import AttachmentOut, NoteOut
from lethe.features.people.contract import InvitedUserOut
from lethe.features.webhooks.contract import SecretOut, SentOut
from tests.tables import each


@each(
    ("answer", "field"),
    [
        (NewApiKeyOut, "key"),
        (NewTenantOut, "admin_key"),
        (InvitedUserOut, "invitation"),
        (SecretOut, "secret"),
        (SentOut, "url"),
        (SentOut, "body"),
        (RejectionOut, "explanation"),
        (DeletionRequestOut, "rejection"),
        (NoteOut, "text"),
        (AttachmentOut, "name"),
    ],
)
def test_secrets_and_words_about_people_are_not_printed(answer: type[BaseModel], field: str) -> None:
    """The `repr` of an answer contains neither its secrets nor what was written about a person."""
    assert field in answer.model_fields
    assert "Jane" in repr(answer.model_construct(id="Jane", generation="Jane", ground="Jane"))
    assert "Jane" not in repr(answer.model_construct(**{field: "Jane"}))


def test_users_issuers_and_the_webhook_secret_are_administered(client: Client) -> None:
    """A user is invited, given another role, disabled, and invited again. Repeating the registration of an identity
    issuer with the same idempotency key returns the same issuer, which can be listed and deleted once. The webhook
    secret is rotated once, however often the rotation from one generation is repeated, and a delivery can be read with
    its URL."""
    made = client.users.create(name="Maria Lopez", email="Maria@Example.com", role="officer")
    assert (made.email, made.role, made.has_password) == ("maria@example.com", "officer", False)
    assert made.invitation.startswith("/admin/welcome?invitation=")
    assert client.users.change(made.id, role="engineer").role == "engineer"
    client.users.disable(made.id)
    assert client.users.get(made.id).disabled_at is not None
    assert client.users.invite(made.id).disabled_at is None
    assert [one.name for one in client.users.list()] == ["Maria Lopez"]

    jwks = {"keys": [OKPKey.generate_key("Ed25519", private=False, auto_kid=True).as_dict(private=False)]}
    asked = {"issuer": "https://id.example", "audience": "lethe"}
    issuer = client.identity_issuers.create(**asked, jwks=jwks, idempotency_key="once")
    assert client.identity_issuers.create(**asked, jwks=jwks, idempotency_key="once") == issuer
    assert list(client.identity_issuers.list()) == [issuer]
    client.identity_issuers.delete(issuer.id)
    with pytest.raises(NotFound):
        client.identity_issuers.delete(issuer.id)

    request = client.deletion_requests.create(subject_id="p1", callback_url="https://hooks.example.org/hook")
    delivery = next(iter(client.webhooks.list(request_id=request.id)))
    assert client.webhooks.get(delivery.id).url == "https://hooks.example.org/hook"
    secret = client.webhooks.secret()
    rotated = client.webhooks.rotate_secret(generation=secret.generation)
    assert client.webhooks.rotate_secret(generation=secret.generation) == rotated
    assert (rotated.generation, rotated.secret == secret.secret) == (secret.generation + 1, False)
    assert client.webhooks.secret() == rotated
