"""Passwords: argon2id and a minimum length, without rules of composition (NIST SP 800-63B, 3.1.1)."""

import functools

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from lethe.contract.problems import FieldError, InputInvalid

MIN_LENGTH, MAX_LENGTH = 12, 1024
"""Bounds in characters."""


def hash_of(password: str) -> str:
    """Hash a new password, which is slow by design. Raises `InputInvalid` if its length is out of bounds or it is not
    encodable."""
    fault = None
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        fault = (
            f"write {MIN_LENGTH} to {MAX_LENGTH:,} characters: several words are easier to remember than a few signs"
        )
    elif not _encodes(password):
        fault = "this has characters that cannot stand here"
    if fault:
        raise InputInvalid("The password was not set.", [FieldError("password", fault)])
    return _hasher().hash(password)


def matches(password: str, password_hash: str | None) -> bool:
    """Return True if the password has this hash. Takes as long without a hash, which hides who has a password."""
    is_possible = len(password) <= MAX_LENGTH and _encodes(password)
    try:
        _hasher().verify(password_hash or _dummy(), password if is_possible else "")
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None and is_possible


def is_outdated(password_hash: str) -> bool:
    """Return True if the hash has other parameters than this release's, and should be replaced at a login."""
    return _hasher().check_needs_rehash(password_hash)


def _encodes(password: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in password)


@functools.cache
def _hasher() -> PasswordHasher:
    return PasswordHasher()


@functools.cache
def _dummy() -> str:
    """Return a hash that no valid password has."""
    return _hasher().hash("lethe: no password")
