"""Languages: the choice of the reader's, complete catalogues, and no untranslatable text on a page."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jinja2 import nodes
from markupsafe import Markup

from app.features.desk import forms, glossary, languages, rendering as pages, wording
from lethe.contract.problems import FieldError, InputInvalid
from tests.features.desk import catalogue, problem_sentences
from tests.features.desk.browsing import Browser
from tests.tables import each

OTHERS = [language for language in languages.LANGUAGES if language != languages.ENGLISH]
PLACES = re.compile(r"%\((\w+)\)s|\{(\w*(?:![rs])?(?::[\w.,]+)?)\}")
TEMPLATES = sorted(pages.environment().list_templates(extensions=["html"]))
TRANSLATES = {"_", "gettext", "ngettext", "count", "marked"}
NOT_WORDS = {"Lethe", "UTC", "v", "n"}
CODED = {
    "PDF",
    "CSV",
    "JSON",
    "SHA-256",
    "GDPR",
    "form after",
    "dr_…, mdl_…",
    "usr_…, key_…",
    "langevin, descent, gaussian …",
}
"""Literals that are the same in every language."""


@each(
    ("accepted", "expected"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("en-GB,en;q=0.9,de;q=0.8", "en"),
        ("fr,de;q=0.5", "de"),
        ("fr", "en"),
        ("de;q=0", "en"),
        ("de;q=high, en", "en"),
        ("*", "en"),
    ],
)
def test_the_language_follows_the_browser(browser: Browser, accepted: str, expected: str) -> None:
    """By default a page is shown in the available language that the browser prefers, or else in English."""
    page = browser.get("/admin/login", **{"Accept-Language": accepted}).text
    assert f'<html lang="{expected}">' in page
    assert ("Anmelden" in page) == (expected == "de")


def test_a_chosen_language_takes_precedence(officer: Browser) -> None:
    """Choosing a language returns to the same page and takes precedence over the browser's preference."""
    page = officer.get("/admin/requests?status=completed").text
    assert 'value="/admin/requests?status=completed" name="next"' in page
    answer = officer.post("/admin/language", language="de", next="/admin/requests?status=completed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/requests?status=completed")
    cookie = answer.headers["set-cookie"]
    assert "lethe_language=de" in cookie
    assert "HttpOnly" in cookie
    assert "Path=/admin" in cookie
    page = officer.get("/admin/requests", **{"Accept-Language": "en"}).text
    assert '<html lang="de">' in page
    assert "Antrag erfassen" in page
    officer.post("/admin/language", language="en", next="/admin")
    assert '<html lang="en">' in officer.get("/admin").text


def test_a_language_is_chosen_before_a_login(browser: Browser) -> None:
    """The login page offers a choice of language."""
    [token] = re.findall(r'value="([0-9a-f]{64})" name="csrf"', browser.get("/admin/login").text)
    assert browser.post("/admin/language", csrf=token, language="de", next="/admin/login").status_code == 303
    assert "Passwort" in browser.get("/admin/login").text


@each(
    ("fields", "origin", "status"),
    [
        ({"csrf": "0" * 64}, "http://testserver", 403),
        ({}, "https://evil.example", 403),
        ({"language": "xx"}, "http://testserver", 422),
    ],
)
def test_other_sites_cannot_set_the_language(
    officer: Browser, fields: dict[str, Any], origin: str, status: int
) -> None:
    """Another site cannot set the language, and unknown languages are refused."""
    answer = officer.post("/admin/language", origin=origin, **({"language": "de"} | fields))
    assert answer.status_code == status
    assert "lethe_language" not in answer.headers.get("set-cookie", "")


def test_a_choice_redirects_only_to_the_dashboard(officer: Browser) -> None:
    """Choosing a language can redirect only to pages of the dashboard."""
    answer = officer.post("/admin/language", language="de", next="https://evil.example/admin")
    assert answer.headers["location"] == "/admin"


@pytest.mark.slow
@pytest.mark.parametrize("language", OTHERS)
def test_every_text_is_translated(language: str) -> None:
    """Each catalogue contains exactly the extracted texts, and none of its translations is empty or fuzzy."""
    found = catalogue.read(catalogue.path_of(language), language)
    expected = {one.id for one in catalogue.extracted()}
    assert {one.id for one in found} == expected, "run .venv/bin/python -m tests.features.desk.catalogue"
    for one in found:
        if one.id:
            said = [one.string] if isinstance(one.string, str) else one.string
            assert all(said)
            assert not one.fuzzy
            assert len(said) == (1 if isinstance(one.id, str) else found.num_plurals)


@pytest.mark.slow
@pytest.mark.parametrize("language", OTHERS)
def test_translations_keep_placeholders_and_tags(language: str) -> None:
    """Each translation has the same placeholders and HTML tags as its English text, and no special HTML character that
    the English text does not have."""
    # the places of texts are no part of a catalogue's file
    in_templates = {one.id for one in catalogue.extracted() if any("/templates/" in name for name, _ in one.locations)}
    # Pages escape the texts of problems, which may have quotation marks and signs of comparison.
    of_problems = set(problem_sentences.texts()) - in_templates
    for one in catalogue.read(catalogue.path_of(language), language):
        if not one.id:
            continue
        english = [one.id] if isinstance(one.id, str) else one.id
        for text, said in zip(english, [one.string] if isinstance(one.string, str) else one.string, strict=True):
            assert sorted(PLACES.findall(said)) == sorted(PLACES.findall(text)), text
            assert sorted(re.findall(r"<[^>]*>", said)) == sorted(re.findall(r"<[^>]*>", text)), text
            signs = set(re.sub(r"<[^>]*>", "", said)) & set('<>"&')
            assert not signs or "&" in text or (text in of_problems and signs <= set(text)), said
            if one.id in in_templates:  # formatted, with or without values
                assert said % {name: "" for name, _ in PLACES.findall(said)} is not None


@pytest.mark.parametrize("language", OTHERS)
def test_glossaries_have_the_same_entries(language: str) -> None:
    """Each glossary explains the same terms and error codes as the English glossary, with the same placeholders."""
    english, other = glossary.glossary(languages.ENGLISH), glossary.glossary(language)
    assert all(term.label and term.says.endswith(".") for term in other.terms.values())
    assert other.terms.keys() == english.terms.keys()
    for known, translated in ((english.runs, other.runs), (english.deliveries, other.deliveries)):
        assert translated.keys() == known.keys()
        for code, advice in known.items():
            assert PLACES.findall(translated[code].means) == PLACES.findall(advice.means), code
            assert bool(translated[code].todo) == bool(advice.todo), code


@pytest.mark.parametrize("language", OTHERS)
def test_values_are_escaped_in_every_language(language: str) -> None:
    """Names that users enter are escaped in every sentence and attribute."""
    hostile = '"><script>alert(1)</script>'
    texts = ("{% trans name=hostile %}Welcome, {{ name }}{% endtrans %}", '{{ _("Copy %(what)s", what=hostile) }}')
    texts += ("{% set name = hostile | string %}{% trans %}Welcome, {{ name }}{% endtrans %}",)
    with languages.speaking(language):
        for text in texts:
            shown = pages.environment().from_string(text).render(hostile=hostile)
            assert "<script>" not in shown
            assert '"' not in shown
            assert "&lt;script&gt;" in shown
        said = wording.message(hostile)
        assert isinstance(said, Markup)
        assert "<script>" not in said


def test_german_pages_use_german_formats() -> None:
    """German pages use a point as the thousands separator, a decimal comma and German names of days, and capitalise
    nouns."""
    assert wording.count(1234, "request", "requests") == "1,234 requests"
    with languages.speaking("de"):
        assert wording.count(1234, "request", "requests") == "1.234 Anträge"
        assert wording.number(1234.5) == "1.234" or wording.number(1234.5) == "1.235"
        assert wording.at_most(0.12345) == "0,1235"
        assert wording.percent(1, 30) == "3,3 %"
        assert languages.inside("Antrag") == "Antrag"
        assert glossary.advice("restored").todo.startswith("Nichts")
    assert languages.inside("Request") == "request"


def test_untranslated_words_of_the_api_are_marked_as_english() -> None:
    """API texts without a translation are marked as English for screen readers. Known texts are translated, whatever
    numbers they contain."""
    with languages.speaking("de"):
        assert wording.message("no such thing") == Markup('<span lang="en">no such thing</span>')
        assert wording.message("least steps to the target; relearning takes 50") == (
            "wenigste Schritte bis zum Ziel; neu zu lernen braucht 50"
        )
    assert wording.message("no such thing", capital=True) == "No such thing"


def test_text_in_the_language_of_the_page_is_not_marked() -> None:
    """A message that is already translated is shown unchanged, and an English message on a German page is marked as
    English."""
    with languages.speaking("de"):
        said = glossary.labels("faults")["string_too_long"].format(max_length=5)
        assert wording.message(said, capital=True) == "Geben Sie höchstens 5 Zeichen ein."
        fault = FieldError("name", said)
        assert forms.fault_of(InputInvalid("", [fault]), "name") == said
        english = forms.fault_of(InputInvalid("", [FieldError("name", "no such thing")]), "name")
        assert english == Markup('<span lang="en">No such thing</span>')


def test_problems_are_translated(officer: Browser) -> None:
    """Titles and known messages of API errors and descriptions of settings are shown in German."""
    officer.post("/admin/language", language="de", next="/admin")
    somebody = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
    assert officer.post("/admin/people", **somebody).status_code == 201
    page = officer.post("/admin/people", **somebody).text
    assert "Eine Person mit dieser E-Mail-Adresse gibt es schon." in page
    assert "laden Sie diese Person stattdessen erneut ein." in page
    assert 'lang="en">' not in page.split('<main id="main"')[1]
    empty = officer.post("/admin/people", **(somebody | {"name": ""})).text
    assert "Füllen Sie dies aus." in empty
    assert 'lang="en">' not in empty.split('<main id="main"')[1]
    settings = officer.get("/admin/settings").text
    assert "Niedrigste Stufe, die protokolliert wird." in settings
    assert 'lang="en">' not in settings.split('<main id="main"')[1]


@pytest.mark.slow
@each("name", TEMPLATES)
def test_every_template_text_is_marked_for_translation(name: str) -> None:
    """Every text in a template is marked for translation, whether it is between tags, in an attribute that is read
    aloud, or an argument of a macro."""
    source = source_of(name)
    bare = re.sub(r"\{% trans .*?\{% endtrans %\}|\{#.*?#\}", "", source, flags=re.S)
    bare = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", bare, flags=re.S)
    bare = re.sub(r"<(pre|script|code)\b.*?</\1>", "", bare, flags=re.S)
    spoken = re.findall(r'\s(?:aria-label|title|placeholder|alt)="([^"]*)"', bare)
    spoken.append(re.sub(r"<[^>]*>", " ", bare))
    words = {word for text in spoken for word in re.findall(r"[A-Za-z]+", re.sub(r"&\w+;", "", text))}
    assert words <= NOT_WORDS
    literals = {one for one in _literals(pages.environment().parse(source)) if _is_said(one)}
    assert literals <= CODED


def source_of(template: str) -> str:
    """Return the text of a template of any feature."""
    environment = pages.environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, template)[0]


def _literals(node: nodes.Node) -> Iterator[str]:
    """Return the texts in the expressions of a template, except translated ones."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in TRANSLATES:
        for argument in (*node.args, *node.kwargs):
            if not isinstance(argument, nodes.Const):
                yield from _literals(argument)
        return
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        yield node.value
    for child in node.iter_child_nodes():
        yield from _literals(child)


def _is_said(text: str) -> bool:
    """Return True if the text looks like prose for readers, not like a CSS class, a name or an address."""
    return bool(re.match(r"[A-Z][a-z]", text) or re.search(r"[a-z] [a-z]", text)) and not set(text) & set("/=#<_")
