"""Equality of subject ids: each tenant has a rule by which the API normalises every id.

Rows, requests, lists and look-ups use the same rule. Otherwise the other Unicode form of "é", a trailing space or a
zero-width space would denote a different person, and the request would complete without erasing anything.
"""

import unicodedata

from lethe.contract.sets import SubjectRule
from lethe.encoding.columns import INVISIBLE, NAME, NO_REWRITTEN_ID, is_rewritten

_SAME = "the same text in Unicode's NFC, without invisible characters and without white space around it"
IN_WORDS: dict[SubjectRule, str] = {
    SubjectRule.EXACT: "exact: the same text, byte for byte",
    SubjectRule.TEXT: f"text: {_SAME}",
    SubjectRule.CASELESS: f"caseless: {_SAME}, in whatever case",
    SubjectRule.EMAIL_DOMAIN: f"email_domain: {_SAME}; what comes after the last @ in whatever case",
    SubjectRule.EMAIL: f"email: {_SAME}; with an @ in it, in whatever case",
}
"""Wording of each rule in certificates and statements: the properties that two ids of one person share."""


def normal(subject_id: str, rule: SubjectRule) -> str:
    """Return a subject id's normal form, which is used to compare ids. The form is empty if the id has no visible
    characters, except under `EXACT`. Idempotent."""
    if rule == SubjectRule.EXACT:
        return subject_id
    trimmed = unicodedata.normalize("NFC", subject_id.translate(INVISIBLE)).strip()
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


def fault_of(normal_form: str) -> str | None:
    """Return why uploads refuse an id in normal form, or None if they accept it."""
    if not normal_form.translate(INVISIBLE).strip():
        return "expected more than white space"
    if not NAME.fullmatch(normal_form):
        return "expected no control characters"
    return NO_REWRITTEN_ID if is_rewritten(normal_form) else None


def in_other_cases(subject_id: str, rule: SubjectRule) -> set[str]:
    """Return, in normal form, common spellings that differ from an id only in case but are different ids under the
    rule: lower case, upper case, capitalised and title case, each also with the part after an @ in lower case."""
    name, at, domain = subject_id.rpartition("@")
    cases = (str.lower, str.upper, str.capitalize, str.title)
    spellings = {case(text) + rest for case in cases for text, rest in ((subject_id, ""), (name, at + domain.lower()))}
    same = _folded(subject_id)
    return {normal(text, rule) for text in spellings if _folded(text) == same} - {normal(subject_id, rule)}


def _folded(text: str) -> str:
    """Return `text` in NFC after Unicode case folding, for canonical caseless matching."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
