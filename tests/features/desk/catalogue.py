"""The catalogues of the dashboard's texts, rewritten by `.venv/bin/python -m tests.features.desk.catalogue`.

Babel extracts the texts that templates and modules of features mark; the sentences of the API's answers are added.
Translations are kept; a text without a translation is empty in its catalogue."""

import datetime
import functools
import importlib.resources
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from app.api import sentences
from app.config import Settings
from app.features.desk.languages import ENGLISH, LANGUAGES
from app.features.desk.wording import words
from app.unlearning.planner import PlanReason
from lethe.contract.models import Objective
from lethe.contract.problems import Problem
from lethe.contract.sets import ErasureGround, Metric, RejectionGround
from lethe.contract.tenants import Policy
from lethe.features.people.contract import Role
from lethe.features.rehearsals import contract as rehearsals
from lethe.proof import absence, certificate
from lethe.proof.guarantees import REFERENCE_PROCESS, Notion
from lethe.proof.methods import all_methods
from tests.features.desk import problem_sentences

FEATURES = Path(str(importlib.resources.files("app.features")))
_KEYWORDS: dict[str, Any] = {
    "_": None,
    "gettext": None,
    "ngettext": (1, 2),
    "pgettext": ((1, "c"), 2),
    "marked": None,
    "count": (2, 3),
    "extent": (2, 3),
    "listing": (3, 4),
}
_METHODS = [("**/templates/**.html", "jinja2"), ("**.py", "python")]
_OPTIONS = {"**/templates/**.html": {"trimmed": "true", "newstyle_gettext": "true", "silent": "false"}}
_FIELDS = """
Other, Subject id, Aliases, External id, Came by, Regulation, Ground, Explanation, Reason, Text, Assignee,
Name, Email, Role, Password, Present, Code, Scopes, Expires on, Expires at, Calls per minute, File, Schema,
Classes, Target, Network id, Adaptive epsilon, Adaptive delta, Metric, Threshold, On breach, People, Anything,
At risk, Received, Received from, Received to, Due from, Due to, Completed from, Completed to
"""
"""Names of form fields as `words` writes them. Names of closed sets are extracted automatically."""
_SENTENCES = (
    "noise costs accuracy here: more regularisation needs less of it, and forgets sooner",
    "noise is not felt here: less regularisation fits the rows more closely",
    "for rows that were added since; not to draw the noise again, which certificates do not cover",
    "twice as many rows: each is a smaller part, and needs less noise to hide",
    "nothing is held about this subject",
    "the deadline was extended",
    "the clock was paused",
    "the clock runs again",
    "the deadline is near",
    "the deadline has passed",
    "write {} to {},{} characters: several words are easier to remember than a few signs",
    "expected more than white space",
    "expected an id as text: a spreadsheet or data frame wrote this one as a number, such as 4.86E+17 or "
    "4711.0, which may have lost digits; format the column as text at its source, and export it again",
)
"""Sentences of remedies, events and checks of the API, with braces for numbers. Others are read from the code."""
_BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def path_of(language: str) -> Path:
    return FEATURES / "desk" / "locale" / language / "LC_MESSAGES" / "dashboard.po"


@functools.cache
def extracted() -> Catalog:
    """Return all English texts of the pages."""
    found = Catalog(project="Lethe", version="0", creation_date=_BEGAN, revision_date=_BEGAN, fuzzy=False)
    found.header_comment = "# Every text of the dashboard, by: .venv/bin/python -m tests.features.desk.catalogue"
    for name, _line, message, comments, context in extract_from_dir(FEATURES, _METHODS, _OPTIONS, _KEYWORDS):
        found.add(message, locations=[(name, 0)], auto_comments=comments, context=context)
    for message in _from_below():
        found.add(message, locations=[("lethe", 0)])
    return found


def _from_below() -> Iterator[str]:
    yield from (*certificate.LIMITS, *absence.LIMITS, rehearsals.LIMITS, *REFERENCE_PROCESS.values())
    for method in all_methods().values():
        yield from (*method.limits, words(method.name))
    for fields in (Policy.model_fields, Settings.model_fields):
        yield from (field.description for field in fields.values() if field.description)
    yield from (sentences.of_plan(reason, defaultdict(lambda: "{}")) for reason in PlanReason)
    for names in (Metric, Role, Notion, get_args(Objective), ErasureGround, RejectionGround, Policy.model_fields):
        yield from map(words, names)
    yield from (condition.title for condition in (Problem, *problem_sentences.CONDITIONS.values()))
    yield from problem_sentences.texts()
    yield from (*_FIELDS.replace("\n", " ").strip().split(", "), *_SENTENCES)


def read(path: Path, language: str | None = None) -> Catalog:
    return read_po(io.BytesIO(path.read_bytes()), locale=language)


def written(catalogue: Catalog) -> bytes:
    """Return a catalogue file's bytes: sorted, unwrapped and without source locations, so that two changes rarely
    conflict."""
    found = io.BytesIO()
    write_po(found, catalogue, width=0, sort_output=True, no_location=True, ignore_obsolete=True)
    return re.sub(
        rb'^"(?:Generated-By|Report-Msgid-Bugs-To|Last-Translator|Language-Team): .*"\n',
        b"",
        found.getvalue(),
        flags=re.M,
    )


def main() -> None:
    template = extracted()
    for language in LANGUAGES:
        if language == ENGLISH:
            continue
        path = path_of(language)
        path.parent.mkdir(parents=True, exist_ok=True)
        catalogue = read(path, language) if path.exists() else Catalog(locale=language, project="Lethe", version="0")
        catalogue.update(template, no_fuzzy_matching=True)
        catalogue.creation_date = catalogue.revision_date = _BEGAN
        catalogue.fuzzy = False
        catalogue.header_comment = f"# The dashboard in {LANGUAGES[language]}."
        path.write_bytes(written(catalogue))


if __name__ == "__main__":
    main()
