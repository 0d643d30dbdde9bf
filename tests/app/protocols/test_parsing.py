"""What protocols read of people is read once."""

from app.protocols.drp import Exercise
from app.protocols.opendsr import RawIdentity
from app.protocols.parsing import parsed


def test_no_string_that_was_read_is_remembered() -> None:
    """The same value, read twice, is two strings: nothing keeps the first for the second, or for ever."""
    email = b'"somebody@example.com"'
    identity = b'{"identity_type": "email", "identity_format": "raw", "identity_value": %s}' % email
    assert parsed(RawIdentity, identity).identity_value is not parsed(RawIdentity, identity).identity_value
    times = b'"issued-at": "2026-01-01T00:00:00Z", "expires-at": "2026-01-01T00:01:00Z", "drp.version": "1.0"'
    exercise = b'{"agent-id": "a", "business-id": "b", %s, "exercise": "deletion", "email": %s}' % (times, email)
    assert parsed(Exercise, exercise).email is not parsed(Exercise, exercise).email
