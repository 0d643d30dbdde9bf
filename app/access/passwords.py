"""Passwords: argon2id, and a length; no rules about what they are made of (NIST SP 800-63B, 3.1.1)."""

import functools

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from lethe.contract.problems import FieldError, InputInvalid

LEAST, MOST = 12, 1024
"""Characters."""


def hash_of(password: str) -> str:
    """Hash a password that somebody chooses; takes a while, by design. Raises `InputInvalid` for one that is too short
    or too long, or is no text."""
    fault = None
    if not LEAST <= len(password) <= MOST:
        fault = f"write {LEAST} to {MOST:,} characters: several words are easier to remember than a few signs"
    elif not _encodes(password):
        fault = "this has characters that cannot stand here"
    if fault:
        raise InputInvalid("The password was not set.", [FieldError("password", fault)])
    return _hasher().hash(password)


def matches(password: str, password_hash: str | None) -> bool:
    """Return True if the password is the one that was hashed; takes as long where there is no hash, so that nobody
    learns who has a password."""
    is_possible = len(password) <= MOST and _encodes(password)
    try:
        _hasher().verify(password_hash or _dummy(), password if is_possible else "")
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None and is_possible


def is_outdated(password_hash: str) -> bool:
    """Return True if the hash was made with other parameters than this release's: it is made anew at a login."""
    return _hasher().check_needs_rehash(password_hash)


def _encodes(password: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in password)


@functools.cache
def _hasher() -> PasswordHasher:
    return PasswordHasher()


@functools.cache
def _dummy() -> str:
    """A hash that no password has."""
    return _hasher().hash("lethe: no password")
