"""Equality of subject ids: each tenant has a rule that normalises every id at the API.

Rows, requests, lists and look-ups use the same rule. Otherwise "é" in its two Unicode forms, or a trailing blank, would
be another person, whose request completes without erasing anything.
"""

import unicodedata

from lethe.contract.fields import SubjectRule

IN_WORDS: dict[SubjectRule, str] = {
    SubjectRule.EXACT: "exact: the same text, byte for byte",
    SubjectRule.TEXT: "text: the same text in Unicode's NFC, without white space around it",
    SubjectRule.CASELESS: "caseless: the same text in Unicode's NFC, without white space around it, in whatever case",
    SubjectRule.EMAIL_DOMAIN: "email_domain: the same text in Unicode's NFC, without white space around it; what comes "
    "after the last @ in whatever case",
    SubjectRule.EMAIL: "email: the same text in Unicode's NFC, without white space around it; with an @ in it, in "
    "whatever case",
}
"""Rules in the words of certificates and statements: the properties that two ids of one person share."""


def normal(subject_id: str, rule: SubjectRule) -> str:
    """Return the normal form of a subject id, by which ids are compared; empty if the id is only white space.
    Idempotent."""
    if rule == SubjectRule.EXACT:
        return subject_id
    trimmed = unicodedata.normalize("NFC", subject_id).strip()
    name, at, domain = trimmed.rpartition("@")
    match rule:
        case SubjectRule.TEXT:
            return trimmed
        case SubjectRule.CASELESS:
            return _folded(trimmed)
        case SubjectRule.EMAIL_DOMAIN:
            return f"{name}@{_folded(domain)}" if at else trimmed
        case SubjectRule.EMAIL:
            return _folded(trimmed) if at else trimmed


def _folded(text: str) -> str:
    """Return `text` in NFC after Unicode's canonical caseless matching."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
