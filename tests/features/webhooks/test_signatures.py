import base64
import datetime
import subprocess
import sys

import pytest
import standardwebhooks
from hypothesis import assume, given, strategies as st

from lethe.features.webhooks import signatures as signature
from lethe.features.webhooks.signatures import (
    HeadersMalformed,
    SecretMalformed,
    SignatureWrong,
    TimestampOutsideTolerance,
    WebhookUnverified,
)
from tests.tables import each

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SENT_AT = datetime.datetime(2021, 2, 25, 15, 2, 10, 250_000, tzinfo=datetime.UTC)
BODY = b'{"type":"deletion_request.completed"}'

keys = st.binary(min_size=32, max_size=32)
ids = st.text("abcXYZ019_-", min_size=1, max_size=20)
moments = st.integers(0, 2**35).map(lambda tenths: datetime.datetime.fromtimestamp(tenths / 10, datetime.UTC))


def signed(**changes: str) -> dict[str, str]:
    headers = signature.sign(BODY, message_id="whd_1", sent_at=SENT_AT, secrets=[SECRET])
    return headers | {name.replace("_", "-"): value for name, value in changes.items()}


def test_the_published_vector_matches() -> None:
    """The signature matches the test vector of the specification's own libraries."""
    at = datetime.datetime.fromtimestamp(1614265330, datetime.UTC)
    headers = signature.sign(
        b'{"test": 2432232314}', message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", sent_at=at, secrets=[SECRET]
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(key=keys, message_id=ids, sent_at=moments, body=st.text())
def test_the_reference_library_computes_the_same_signature(
    key: bytes, message_id: str, sent_at: datetime.datetime, body: str
) -> None:
    """The specification's Python library computes the same signature for any message."""
    secret = signature.secret_from(key)
    headers = signature.sign(body.encode(errors="replace"), message_id=message_id, sent_at=sent_at, secrets=[secret])
    oracle = standardwebhooks.Webhook(secret).sign(message_id, sent_at, body.encode(errors="replace").decode())
    assert headers["webhook-signature"] == oracle


@given(keys=st.lists(keys, min_size=1, max_size=3, unique=True), data=st.data(), message_id=ids, body=st.text())
def test_the_reference_library_verifies_our_signatures(
    keys: list[bytes], data: st.DataObject, message_id: str, body: str
) -> None:
    """With the specification's Python library and any of the secrets, a receiver can verify the call."""
    secrets = [signature.secret_from(key) for key in keys]
    now = datetime.datetime.now(datetime.UTC)
    sent = body.encode(errors="replace")
    headers = signature.sign(sent, message_id=message_id, sent_at=now, secrets=secrets)
    held = data.draw(st.sampled_from(secrets))
    standardwebhooks.Webhook(held).verify(sent, headers, json_parse=False)
    assert signature.verify(held, headers, sent, now=now) == message_id


@given(key=keys, other=keys, message_id=ids, sent_at=moments, body=st.binary(), late=st.integers(-300, 300))
def test_only_the_secret_that_signed_verifies(
    key: bytes, other: bytes, message_id: str, sent_at: datetime.datetime, body: bytes, late: int
) -> None:
    """A call verifies only with the secret that signed it, and does so up to five minutes before or after its
    timestamp."""
    assume(key != other)
    sent_at = sent_at.replace(microsecond=0)
    headers = signature.sign(body, message_id=message_id, sent_at=sent_at, secrets=[signature.secret_from(key)])
    now = sent_at + datetime.timedelta(seconds=late)
    assert signature.verify(signature.secret_from(key), headers, body, now=now) == message_id
    with pytest.raises(SignatureWrong):
        signature.verify(signature.secret_from(other), headers, body, now=now)


@given(body=st.binary(), other=st.binary())
def test_another_body_is_refused(body: bytes, other: bytes) -> None:
    """Headers signed for one body do not verify with another body."""
    assume(body != other)
    headers = signature.sign(body, message_id="whd_1", sent_at=SENT_AT, secrets=[SECRET])
    with pytest.raises(SignatureWrong):
        signature.verify(SECRET, headers, other, now=SENT_AT)


@given(split=st.data())
def test_signed_bytes_cannot_be_split_differently(split: st.DataObject) -> None:
    """A signature does not verify if the signed bytes are divided differently into id, timestamp and body."""
    body = b"1614265331.{}"
    headers = signature.sign(body, message_id="whd_1", sent_at=SENT_AT, secrets=[SECRET])
    content = b".".join([b"whd_1", headers["webhook-timestamp"].encode(), body]).decode()
    dots = [index for index, character in enumerate(content) if character == "."]
    first, second = sorted(split.draw(st.lists(st.sampled_from(dots), min_size=2, max_size=2, unique=True)))
    moved = headers | {"webhook-id": content[:first], "webhook-timestamp": content[first + 1 : second]}
    if (first, second) == tuple(dots[:2]):
        assert signature.verify(SECRET, moved, content[second + 1 :].encode(), now=SENT_AT) == "whd_1"
    else:
        with pytest.raises(HeadersMalformed):
            signature.verify(SECRET, moved, content[second + 1 :].encode(), now=SENT_AT)


@pytest.mark.parametrize("late", [-301, 301, 10**8])
def test_an_old_call_is_refused(late: int) -> None:
    """A correctly signed call whose timestamp is more than five minutes in the past or future is refused with a
    specific error."""
    now = datetime.datetime.fromtimestamp(1614265330 + late, datetime.UTC)
    with pytest.raises(TimestampOutsideTolerance):
        signature.verify(SECRET, signed(), BODY, now=now)
    assert signature.verify(SECRET, signed(), BODY, now=now, tolerance=datetime.timedelta(days=10**4)) == "whd_1"


@each(
    "headers",
    [
        {},
        {name: value for name, value in signed().items() if name != "webhook-id"},
        {name: value for name, value in signed().items() if name != "webhook-timestamp"},
        {name: value for name, value in signed().items() if name != "webhook-signature"},
        signed(webhook_timestamp="hello"),
        signed(webhook_timestamp="1614265330.0"),
        signed(webhook_timestamp="01614265330"),
        signed(webhook_timestamp="-1614265330"),
        signed(webhook_timestamp="١٦١٤٢٦٥٣٣٠"),
        signed(webhook_id="whd.1"),
        signed(webhook_id=""),
        signed(webhook_signature=""),
    ],
)
def test_incomplete_headers_are_refused(headers: dict[str, str]) -> None:
    """A missing or malformed header is refused before any signature is compared."""
    with pytest.raises(HeadersMalformed):
        signature.verify(SECRET, headers, BODY, now=SENT_AT)


GOOD = signed()["webhook-signature"]


@pytest.mark.parametrize(
    "given",
    [
        "v1,",
        GOOD[:8],
        GOOD[3:],
        GOOD.replace("v1,", "v2,"),
        GOOD.replace("v1,", "v1a,"),
        GOOD + "=",
        "ü",
        "\udcff",
        ",",
    ],
)
def test_wrong_signatures_are_refused(given: str) -> None:
    """A truncated signature, a signature with another version prefix and arbitrary text are refused as wrong
    signatures."""
    assert signature.verify(SECRET, signed(), BODY, now=SENT_AT) == "whd_1"
    with pytest.raises(SignatureWrong):
        signature.verify(SECRET, signed(webhook_signature=given), BODY, now=SENT_AT)


def test_one_valid_signature_is_enough() -> None:
    """A call is accepted if its header contains a valid signature alongside signatures of other versions and
    secrets."""
    other = "Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
    headers = signed(webhook_signature=f"v1,{other} v2,{other} v1a,{other} {GOOD} v1,{other}")
    assert signature.verify(SECRET, headers, BODY, now=SENT_AT) == "whd_1"


def test_header_names_are_case_insensitive() -> None:
    """Header names are accepted in upper or lower case, because frameworks spell them differently."""
    headers = {name.title(): value for name, value in signed().items()}
    assert signature.verify(SECRET, headers, BODY, now=SENT_AT) == "whd_1"


@given(key=st.binary(max_size=80))
def test_malformed_secrets_are_refused(key: bytes) -> None:
    """A secret consists of the prefix whsec_ and the base64 of 24 to 64 bytes. Any other text is refused with an error
    that does not quote it."""
    secret = "whsec_" + base64.b64encode(key).decode()
    if 24 <= len(key) <= 64:
        assert signature.sign(BODY, message_id="a", sent_at=SENT_AT, secrets=[secret])
    else:
        with pytest.raises(SecretMalformed) as refused:
            signature.sign(BODY, message_id="a", sent_at=SENT_AT, secrets=[secret])
        assert not key or secret not in str(refused.value)
    for broken in (secret.removeprefix("whsec_"), secret + "!", "whsec_" + secret):
        with pytest.raises(SecretMalformed):
            signature.verify(broken, signed(), BODY, now=SENT_AT)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_new_secrets_require_32_bytes(size: int) -> None:
    """A new secret is made from exactly 32 bytes, and any other number of bytes is refused."""
    with pytest.raises(SecretMalformed):
        signature.secret_from(bytes(size))


@pytest.mark.parametrize(
    ("message_id", "sent_at", "secrets"),
    [
        ("a.b", SENT_AT, [SECRET]),
        ("a b", SENT_AT, [SECRET]),
        ("a\r\nb: c", SENT_AT, [SECRET]),
        ("", SENT_AT, [SECRET]),
        ("a", SENT_AT.replace(tzinfo=None), [SECRET]),
        ("a", SENT_AT, []),
    ],
)
def test_unverifiable_calls_are_not_signed(message_id: str, sent_at: datetime.datetime, secrets: list[str]) -> None:
    """Signing is refused if the id contains a full stop or a space, the time has no time zone, or no secret is
    given."""
    with pytest.raises(ValueError):
        signature.sign(BODY, message_id=message_id, sent_at=sent_at, secrets=secrets)


def test_receivers_can_catch_one_exception() -> None:
    """Every failed verification raises the same exception class, and a wrong configuration raises a different one."""
    for error in (HeadersMalformed, SignatureWrong, TimestampOutsideTolerance):
        assert issubclass(error, WebhookUnverified)
    assert not issubclass(SecretMalformed, WebhookUnverified)


def test_importing_webhooks_is_cheap() -> None:
    """Importing `lethe.webhooks` imports neither the service nor numpy."""
    heavy = {"numpy", "scipy", "sqlalchemy", "fastapi", "celery", "torch", "app"}
    script = f"import sys, lethe.webhooks; print(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
