"""Features' checks of requests: identity statements (extension socket `ADMITS`) and callback URLs (`CALLBACK_URLS`)."""

import datetime
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from sqlalchemy.orm import Session

from app.keys import Keys
from lethe import sockets
from lethe.contract import problems, sets


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityStatement:
    """Valid, unused identity statement. `hash` is the keyed hash of its `jti`."""

    issuer_id: str
    hash: str
    expires_at: datetime.datetime


class StatementJudge(Protocol):
    """Verifier of identity statements."""

    def check(
        self, session: Session, keys: Keys, token: str, *, subject_sha256: bytes, rule: sets.SubjectRule
    ) -> IdentityStatement:
        """Return the statement that a token makes about this subject, or raise `IdentityStatementInvalid`."""

    def existing(self, session: Session, issuer_ids: Collection[str]) -> set[str]:
        """Return those of `issuer_ids` that are still registered."""

    def used(self, session: Session, hashes: Collection[str]) -> set[str]:
        """Return the elements of `hashes` that belong to used statements."""

    def use(self, session: Session, statements: Sequence[IdentityStatement]) -> None:
        """Record statements as used."""

    def refusal(self) -> problems.IdentityStatementInvalid:
        """Return the error for rejected statements. It is always the same, so that it does not reveal the reason."""


def sha256_of(subject_id: str) -> bytes:
    """Return the SHA-256 that identifies a subject id in identity statements; some callers know only this hash."""
    return hashlib.sha256(subject_id.encode()).digest()


def judge() -> StatementJudge:
    """Return the verifier of identity statements, or raise `InputInvalid` if no feature provides it."""
    judges: tuple[StatementJudge, ...] = sockets.plugs("app.features", "hooks", "ADMITS")
    if not judges:
        fault = problems.FieldError(
            "identity_statement", "expected none: this installation judges no identity statements"
        )
        raise problems.InputInvalid("This installation judges no identity statements.", [fault])
    return judges[0]


CheckUrl = Callable[[str, Sequence[IPv4Network | IPv6Network]], None]


def check_callback_url(url: str, allowed: Sequence[IPv4Network | IPv6Network]) -> None:
    """Check a request's callback URL. Networks in `allowed` may be called even if they are not public.

    Raises `InputInvalid` if the URL cannot be called, or if no feature sends callbacks.
    """
    checks: tuple[CheckUrl, ...] = sockets.plugs("app.features", "hooks", "CALLBACK_URLS")
    if not checks:
        fault = problems.FieldError("callback_url", "expected none: this installation sends no callbacks")
        raise problems.InputInvalid("This installation sends no callbacks.", [fault])
    for check_url in checks:
        check_url(url, allowed)
