"""Technical terms: each explained in one place by one sentence, and wherever its words head a number."""

import re
from pathlib import Path

import app.features
from app.features.desk.terms import TERMS

_TEMPLATES = {str(path): path.read_text() for path in Path(app.features.__path__[0]).rglob("templates/**/*.html")}
"""The templates of all features, by path."""
_RETIRED = (
    *("How it stands", "came to nothing", "Its mechanism", "run as wide", "step as wide", "no dearer", "Take them in"),
    *("Put it in force", "believed", "Whom<", "left of anybody", " lane"),
)


def test_terms_are_those_that_pages_use() -> None:
    """No page asks for a term that nobody explained, and none is explained that no page has."""
    used = {name for text in _TEMPLATES.values() for name in re.findall(r'\bterm\("(\w+)"', text)}
    assert used == TERMS.keys()


def test_a_term_is_one_sentence() -> None:
    """Each begins with a capital, ends with its only full stop, and is short enough to be read at once."""
    for name, term in TERMS.items():
        assert re.fullmatch(r"[A-Z][^.]*\.", term.says), name
        assert len(term.says) <= 240, name


def test_what_heads_a_number_is_explained() -> None:
    """A heading of a table or of a fact that is a term is written as one."""
    labels = "|".join(re.escape(term.label) for term in TERMS.values() if term.label not in ("Rows", "Noise"))
    for name, text in _TEMPLATES.items():
        assert not re.findall(rf'<(?:dt|th)[^>]*(?:class="[^"]*number[^"]*")?>(?:{labels})</(?:dt|th)>', text), name


def test_words_that_were_replaced_stay_away() -> None:
    """Pages say residual influence, failed runs, privacy parameters, data subject, canaries."""
    found = [(name, word) for name, text in _TEMPLATES.items() for word in _RETIRED if word in text]
    assert found == []
