"""The installation's signatures verify with its published key; otherwise nothing is signed."""

import datetime
import json
from pathlib import Path

import pytest
from joserfc import jws
from joserfc.jwk import OKPKey

from app import signing
from app.accounting import certificates
from app.audit import checkpoints
from app.audit.checkpoints import AUDIT, Head
from app.errors import SignatureUnverifiable
from app.keys import Keys
from lethe.verification.certificates import signed_payload


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys").create()


def test_signed_payloads_verify_with_the_published_key(keys: Keys) -> None:
    """A payload can be read from its JWS with the published key, and the JWS header names the payload's type."""
    [public] = signing.public_keys(keys)["keys"]
    assert "d" not in public
    read = jws.deserialize_compact(
        signing.sign(keys, b"said", kind="kind"), OKPKey.import_key(public), algorithms=["Ed25519"]
    )
    assert read.payload == b"said"
    assert read.headers() == {"alg": "Ed25519", "typ": "kind", "kid": public["kid"]}


def test_a_long_statement_is_signed(keys: Keys) -> None:
    """A one-megabyte statement, such as the bundle of a request sent to hundreds of systems, can be signed and then
    verified with the published key."""
    long = b"said" * 2**18
    signed = signing.sign(keys, long, kind="kind")
    assert signed_payload(signed, signing.published(keys), kind="kind") == long
    assert signed_payload(signed[:-8] + "AAAAAAAA", signing.published(keys), kind="kind") is None


@pytest.mark.parametrize("place", range(0, 43, 6))
def test_a_changed_private_key_does_not_sign(keys: Keys, tmp_path: Path, place: int) -> None:
    """If any character of the key's private part was changed, neither certificates nor checkpoints are signed, even if
    the changed character is valid base64url."""
    file = tmp_path / "keys" / "signing.jwk"
    key = json.loads(file.read_text())
    private = key["d"][:place] + ("A" if key["d"][place] != "A" else "E") + key["d"][place + 1 :]
    file.write_text(json.dumps(key | {"d": private}))
    changed = keys.fresh()
    with pytest.raises(SignatureUnverifiable):
        certificates.sign(changed, {"format": "x"})
    head = Head(chain=AUDIT, tenant_id="ten_1", sequence=1, hash="0" * 64)
    with pytest.raises(SignatureUnverifiable):
        checkpoints.sign(changed, head, at=datetime.datetime.now(datetime.UTC))
