"""Languages of the pages: how a reader's language is chosen, and the texts from gettext catalogues.

Texts in templates and modules are in English. `locale/<code>/LC_MESSAGES/dashboard.po` translates them into another
language. Each process reads each catalogue once.
"""

import contextlib
import datetime
import functools
import gettext as catalogues
import importlib.resources
import io
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from babel import dates
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from fastapi import Request

ENGLISH = "en"
LANGUAGES: Mapping[str, str] = {ENGLISH: "English", "de": "Deutsch"}
"""Languages of the pages by code, each with its name in the language itself."""
COOKIE = "lethe_language"
_CAPITALISED_NOUNS = {"de"}
"""Languages that capitalise all nouns."""
_DECIMAL_COMMA = {"de"}
"""Languages in which numbers are written as 1.234,5."""
_SWAPPED_SIGNS = str.maketrans(",.", ".,")
_spoken: ContextVar[str] = ContextVar("language", default=ENGLISH)


def speak(request: Request) -> None:
    """Set the language of the current context to the reader's language."""
    _spoken.set(of(request))


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Set the language of the current context while the context manager is open."""
    before = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(before)


def spoken() -> str:
    """Return the current context's language code."""
    return _spoken.get()


def of(request: Request) -> str:
    """Return the language chosen by the reader; otherwise the language preferred by their browser, or English."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    accepted = _accepted(request.headers.get("accept-language", ""))
    return next((language for language in accepted if language in LANGUAGES), ENGLISH)


def _accepted(header: str) -> list[str]:
    """Parse an Accept-Language header into languages without country codes, most preferred first."""
    languages: list[tuple[float, str]] = []
    for part in header.split(","):
        name, _, weight = part.partition(";")
        try:
            quality = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if quality > 0:
            languages.append((quality, name.strip().lower().partition("-")[0]))
    return [name for _, name in sorted(languages, key=lambda language: -language[0])]


@functools.cache
def _catalogue(language: str) -> catalogues.NullTranslations:
    if language == ENGLISH:
        return catalogues.NullTranslations()
    path = importlib.resources.files("app.features.desk") / "locale" / language / "LC_MESSAGES" / "dashboard.po"
    compiled = io.BytesIO()
    write_mo(compiled, read_po(io.BytesIO(path.read_bytes()), locale=language))
    compiled.seek(0)
    return catalogues.GNUTranslations(compiled)


class TranslatedText(str):
    """Text from a catalogue in the reader's language. Filling in its placeholders also returns a `TranslatedText`."""

    __slots__ = ()

    def format(self, *values: object, **named: object) -> "TranslatedText":
        return TranslatedText(super().format(*values, **named))


def marked(text: str) -> str:
    """Return `text` unchanged. The call marks it for extraction; `gettext` translates it where it is shown."""
    return text


def gettext(text: str) -> str:
    return TranslatedText(_catalogue(spoken()).gettext(text))


def pgettext(context: str, text: str) -> str:
    """Return the translation of `text` in `context`, for texts whose translations differ by context."""
    return TranslatedText(_catalogue(spoken()).pgettext(context, text))


def ngettext(singular: str, plural: str, number: int) -> str:
    return _catalogue(spoken()).ngettext(singular, plural, number)


def inside(text: str) -> str:
    """Return a label as it is written within a sentence."""
    return text if spoken() in _CAPITALISED_NOUNS else text.lower()


def localised(number: str) -> str:
    """Replace a number's English decimal and thousands separators with those of the reader's language."""
    return number.translate(_SWAPPED_SIGNS) if spoken() in _DECIMAL_COMMA else number


def day(at: datetime.date) -> str:
    if spoken() == ENGLISH:
        return f"{at.day} {at:%b %Y}"
    return dates.format_date(at, "medium", locale=spoken())


def weekday(at: datetime.date) -> str:
    """Return a date in full with its weekday, for tooltips."""
    if spoken() == ENGLISH:
        return f"{at:%A}, {at.day} {at:%B %Y}"
    return dates.format_date(at, "full", locale=spoken())


def short_day(at: datetime.date) -> str:
    if spoken() == ENGLISH:
        return f"{at.day} {at:%b}"
    return dates.format_date(at, "d. MMM", locale=spoken())
