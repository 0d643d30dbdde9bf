"""Equality of subject ids: the rule of a tenant, by which every id is brought to one form at the door.

Rows, requests, lists and look-ups go through the same rule, so that "é" in its two forms, or a blank at the end, is not
somebody else whose request completes with nothing erased.
"""

import unicodedata

from lethe.contract.choices import SubjectRule

IN_WORDS: dict[SubjectRule, str] = {
    SubjectRule.EXACT: "exact: the same text, byte for byte",
    SubjectRule.TEXT: "text: the same text in Unicode's NFC, without white space around it",
    SubjectRule.CASELESS: "caseless: the same text in Unicode's NFC, without white space around it, in whatever case",
    SubjectRule.EMAIL_DOMAIN: "email_domain: the same text in Unicode's NFC, without white space around it; what comes "
    "after the last @ in whatever case",
    SubjectRule.EMAIL: "email: the same text in Unicode's NFC, without white space around it; with an @ in it, in "
    "whatever case",
}
"""The properties that two ids of one person share, as certificates and statements say it."""


def normal(subject_id: str, rule: SubjectRule) -> str:
    """The form by which a subject id is compared; empty for one that is nothing but white space. A form is its own."""
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
    """As Unicode compares texts without case (canonical caseless matching), in NFC."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
