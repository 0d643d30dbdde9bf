"""Warnings about subject ids in an upload that requests might fail to match. Ids are counted, not stored."""

import re
from collections.abc import Callable, Iterable

from app.api.calls import Call
from lethe.contract.sets import SubjectRule
from lethe.features.identities.contract import ADDRESSES, CUSTOMER_ID, ROUNDED

_ADDRESS = re.compile(r"\s*[^@\s]+@[^@\s]+\.[^@\s]+\s*")
_ROUNDED = re.compile(r"\s*[1-9][0-9]{14}0+\s*")
_MIN_ROUNDED = 10
"""Number of rounded ids at which a warning is given, because a tenth of all 16-digit ids end in a zero anyway."""
_REGARD_CASE = frozenset({SubjectRule.TEXT, SubjectRule.EXACT})
References = Callable[[Iterable[str]], list[str]]


def observe(call: Call, kind: str | None, references: References) -> tuple[References, Callable[[], list[str]]]:
    """Return a function that maps ids to pseudonyms, and another that returns warnings about the ids mapped so far."""
    of_rule = call.caller.policy.subject_rule in _REGARD_CASE and kind in (None, CUSTOMER_ID)
    num_ids = num_addresses = num_rounded = 0

    def count(ids: Iterable[str]) -> Iterable[str]:
        nonlocal num_ids, num_addresses, num_rounded
        for identifier in ids:
            num_ids += 1
            num_addresses += _ADDRESS.fullmatch(identifier) is not None
            num_rounded += _ROUNDED.fullmatch(identifier) is not None
            yield identifier

    def warnings() -> list[str]:
        advice = [ADDRESSES] if of_rule and 2 * num_addresses > num_ids else []
        return [*advice, ROUNDED] if num_rounded >= _MIN_ROUNDED and 2 * num_rounded > num_ids else advice

    return lambda ids: references(count(ids)), warnings
