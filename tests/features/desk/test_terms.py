"""Technical terms: each explained in one place by one sentence, and wherever its words label a number."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import app.features
from app.features.desk.filters import RequestColumn
from app.features.desk.glossary import glossary
from app.features.desk.languages import LANGUAGES
from lethe.contract.sets import (
    ClockState,
    DamageKind,
    ErasureGround,
    ModelStatus,
    Outcome,
    QueueRule,
    RejectionGround,
    RequestOrder,
    RequestStatus,
    RunKind,
    RunStatus,
    Scope,
    WaitReason,
    WorkerState,
)
from lethe.features.webhooks.contract import DeliveryStatus
from lethe.proof.guarantees import Notion

TERMS = glossary("en").terms
_CLOSED_SETS: dict[str, Iterable[str]] = {
    "states": (*RequestStatus, *ModelStatus, *RunStatus, *ClockState, *WorkerState, *DeliveryStatus),
    "outcomes": Outcome,
    "run_kinds": RunKind,
    "waits": WaitReason,
    "reasons": (*WaitReason, "none"),
    "damages": DamageKind,
    "queue_rules": QueueRule,
    "grounds": ErasureGround,
    "rejection_grounds": RejectionGround,
    "columns": RequestColumn,
    "orders": RequestOrder,
    "scopes": set(Scope) - {Scope.AGENT},
    "notions": set(Notion) - {Notion.RESET},
}
"""Closed sets whose values a page labels, by their tables."""
_TEMPLATES = {str(path): path.read_text() for path in Path(app.features.__path__[0]).rglob("templates/**/*.html")}
"""Templates of all features, by path."""
_RETIRED = (
    *("How it stands", "came to nothing", "Its mechanism", "run as wide", "step as wide", "no dearer", "Take them in"),
    *("Put it in force", "believed", "Whom<", "left of anybody", " lane"),
)


def test_terms_match_those_on_pages() -> None:
    """Every term on a page is explained, and every explained term occurs on a page."""
    used = {name for text in _TEMPLATES.values() for name in re.findall(r'\bterm\("(\w+)"', text)}
    assert used == TERMS.keys()


def test_a_term_is_one_sentence() -> None:
    """Each explanation is one short sentence that begins with a capital letter and ends with a full stop."""
    for name, term in TERMS.items():
        assert re.fullmatch(r"[A-Z][^.]*\.", term.says), name
        assert len(term.says) <= 240, name


def test_every_value_of_a_closed_set_has_a_label() -> None:
    """Every value of an enumeration has a label, so that no page shows its code."""
    labels = glossary("en").labels
    missing = {name: {str(value) for value in values} - labels[name].keys() for name, values in _CLOSED_SETS.items()}
    assert {name: values for name, values in missing.items() if values} == {}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_languages_label_the_same_values(language: str) -> None:
    """Each language has the same labels as English, in the same order and with the same placeholders."""
    english, labels = glossary("en").labels, glossary(language).labels
    assert [(name, list(values)) for name, values in labels.items()] == [
        (name, list(values)) for name, values in english.items()
    ]
    for name, values in labels.items():
        for value, label in values.items():
            assert label, (name, value)
            assert re.findall(r"{\w+}", label) == re.findall(r"{\w+}", english[name][value]), (name, value)


def test_headings_that_are_terms_are_explained() -> None:
    """Every table heading and fact label that the glossary explains is marked up as a term."""
    labels = "|".join(re.escape(term.label) for term in TERMS.values() if term.label not in ("Rows", "Noise"))
    for name, text in _TEMPLATES.items():
        assert not re.findall(rf'<(?:dt|th)[^>]*(?:class="[^"]*number[^"]*")?>(?:{labels})</(?:dt|th)>', text), name


def test_replaced_words_are_not_used() -> None:
    """Pages use the terms residual influence, failed runs, privacy parameters, data subject and canaries, and not the
    words that these terms replaced."""
    found = [(name, word) for name, text in _TEMPLATES.items() for word in _RETIRED if word in text]
    assert found == []
