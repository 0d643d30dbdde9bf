"""Glossary for the pages: technical terms, advice on the error codes of runs and webhook deliveries, and labels.

Each language's texts are in `glossaries/<language>.toml`. The advice must agree with docs/operations.md and
docs/webhooks.md.
"""

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.features.desk.languages import TranslatedText, spoken


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Technical term: its default label on a page, and the sentence that explains it.

    A template writes `ui.term("epsilon")`, which renders a button that shows the explanation. All explanations are
    included once, at the end of each page.
    """

    label: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice on an error code: its meaning, and what an operator should do."""

    means: str
    todo: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Glossary:
    """Glossary in one language: terms by name, advice by error code, and labels of enumerations by value."""

    terms: Mapping[str, Term]
    runs: Mapping[str, Advice]
    deliveries: Mapping[str, Advice]
    labels: Mapping[str, Mapping[str, str]]


def terms() -> Mapping[str, Term]:
    """Return the terms in the reader's language."""
    return glossary(spoken()).terms


def labels(of: str) -> Mapping[str, str]:
    """Return the labels for the values of the enumeration `of`, in the reader's language and in display order."""
    return glossary(spoken()).labels[of]


def advice(error_code: str) -> Advice:
    """Return the advice on a run's error code."""
    known = glossary(spoken()).runs
    return known.get(error_code, known["unknown"])


def delivery_advice(error_code: str) -> Advice:
    """Return the advice on the error code of a delivery's last attempt."""
    known = glossary(spoken()).deliveries
    status = error_code.removeprefix("http_")
    family = ("http_5xx" if status.startswith("5") else "http") if status.isdecimal() else "other"
    advice = known.get(error_code, known[family])
    return Advice(means=advice.means.format(status=status), todo=advice.todo)


@functools.cache
def glossary(language: str) -> Glossary:
    """Read a language's glossary."""
    path = importlib.resources.files("app.features.desk") / "glossaries" / f"{language}.toml"
    texts = tomllib.loads(path.read_text(encoding="utf8"))
    return Glossary(
        terms={name: Term(**term) for name, term in texts["terms"].items()},
        runs=_by_code(texts["runs"], retried=texts["retried"]),
        deliveries=_by_code(texts["deliveries"], retried=texts["retried"]),
        labels={
            of: {value: TranslatedText(label) for value, label in labels.items()}
            for of, labels in texts["labels"].items()
        },
    )


def _by_code(entries: list[dict[str, Any]], *, retried: str) -> dict[str, Advice]:
    """Map each error code to its advice; a retried error's advice ends with a note on automatic retries."""
    return {
        code: Advice(
            means=entry["means"],
            todo=" ".join(filter(None, [entry.get("todo"), retried if entry.get("is_retried") else ""])),
        )
        for entry in entries
        for code in entry["codes"]
    }
