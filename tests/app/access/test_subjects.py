import pytest
from hypothesis import given, strategies as st

from app.access.subjects import normal
from lethe.contract.sets import SubjectRule

RULES = tuple(SubjectRule)
COMPOSED, DECOMPOSED = "Zo\u00eb", "Zoe\u0308"


@pytest.mark.parametrize(
    ("rule", "same", "other"),
    [
        ("exact", ["p1"], ["p1 ", "P1", " p1", "p\u200b1"]),
        ("text", ["p1", "p\u200b1", "\ufeff p1", "p1 \u200e", "p\u00ad1\u2060"], ["p\u200d1", "p 1"]),
        ("text", [COMPOSED, DECOMPOSED, f"\u00a0{COMPOSED}\t"], [COMPOSED.upper(), "Zoe"]),
        ("caseless", [COMPOSED, DECOMPOSED.upper(), f"{COMPOSED.lower()} "], ["Zoe"]),
        ("caseless", ["Stra\u00dfe", "STRASSE"], ["Strase"]),
        ("email_domain", ["Ann@Example.com", " Ann@EXAMPLE.com"], ["ann@example.com"]),
        ("email_domain", ["Ann"], ["ann"]),
        ("email", ["Ann@Example.com", "ann@EXAMPLE.com "], ["ann@example.org"]),
        ("email", ["Ann"], ["ann"]),
    ],
)
def test_spellings_of_one_id_have_the_same_normal_form(rule: SubjectRule, same: list[str], other: list[str]) -> None:
    """Each subject rule gives all spellings of one person's id the same normal form, and gives ids of different people
    different normal forms."""
    (form,) = {normal(one, rule) for one in same}
    assert form not in {normal(one, rule) for one in other}


@given(st.text(), st.sampled_from(RULES))
def test_normalizing_is_idempotent(subject_id: str, rule: SubjectRule) -> None:
    """Normalizing a subject id a second time does not change it, so other systems can hash an id that is already
    normalized."""
    assert normal(normal(subject_id, rule), rule) == normal(subject_id, rule)
