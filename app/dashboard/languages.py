"""Languages of the pages: which one a reader gets, and its texts, from gettext catalogues.

English is in templates and modules themselves. `locale/dashboard.pot` has all of it, and of each other language
`locale/<code>/LC_MESSAGES/dashboard.po` has what it says instead; they are read as they are, once by each process.
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
"""Each with its name in itself."""
COOKIE = "lethe_language"
_LARGE_NOUNS = {"de"}
"""Languages in which a noun begins with a capital wherever it stands."""
_COMMA = {"de"}
"""Languages that write 1.234,5."""
_OTHER_WAY_ROUND = str.maketrans(",.", ".,")
_spoken: ContextVar[str] = ContextVar("language", default=ENGLISH)


def speak(request: Request) -> None:
    """Have the texts of this request, and what it calls, in the reader's language."""
    _spoken.set(of(request))


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Have texts in this language for a while."""
    before = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(before)


def spoken() -> str:
    return _spoken.get()


def of(request: Request) -> str:
    """The language that somebody chose, else the one of ours that their browser likes best, else English."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return next((one for one in _accepted(request.headers.get("accept-language", "")) if one in LANGUAGES), ENGLISH)


def _accepted(header: str) -> list[str]:
    """The languages that a browser asks for, without their countries, the best first."""
    found: list[tuple[float, str]] = []
    for part in header.split(","):
        name, _, weight = part.partition(";")
        try:
            quality = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if quality > 0:
            found.append((quality, name.strip().lower().partition("-")[0]))
    return [name for _, name in sorted(found, key=lambda one: -one[0])]


@functools.cache
def _catalogue(language: str) -> catalogues.NullTranslations:
    if language == ENGLISH:
        return catalogues.NullTranslations()
    path = importlib.resources.files("app.dashboard") / "locale" / language / "LC_MESSAGES" / "dashboard.po"
    compiled = io.BytesIO()
    write_mo(compiled, read_po(io.BytesIO(path.read_bytes()), locale=language))
    compiled.seek(0)
    return catalogues.GNUTranslations(compiled)


class Said(str):
    """A text of the catalogues, in the reader's language; so is what it is after its places are filled."""

    __slots__ = ()

    def format(self, *values: object, **named: object) -> "Said":
        return Said(super().format(*values, **named))


def marked(text: str) -> str:
    """The text itself: it goes into the catalogues, and is translated by `gettext` where it is shown."""
    return text


def gettext(text: str) -> str:
    return Said(_catalogue(spoken()).gettext(text))


def pgettext(context: str, text: str) -> str:
    """The text of things of this kind, where another language has another one for each."""
    return Said(_catalogue(spoken()).pgettext(context, text))


def ngettext(one: str, many: str, number: int) -> str:
    return _catalogue(spoken()).ngettext(one, many, number)


def inside(text: str) -> str:
    """A label as it stands within a sentence."""
    return text if spoken() in _LARGE_NOUNS else text.lower()


def localised(written: str) -> str:
    """A number as English writes it, with the signs of the reader's language."""
    return written.translate(_OTHER_WAY_ROUND) if spoken() in _COMMA else written


def day(at: datetime.date) -> str:
    if spoken() == ENGLISH:
        return f"{at.day} {at:%b %Y}"
    return dates.format_date(at, "medium", locale=spoken())


def weekday(at: datetime.date) -> str:
    """The day in full, as it stands under the pointer."""
    if spoken() == ENGLISH:
        return f"{at:%A}, {at.day} {at:%B %Y}"
    return dates.format_date(at, "full", locale=spoken())


def short_day(at: datetime.date) -> str:
    if spoken() == ENGLISH:
        return f"{at.day} {at:%b}"
    return dates.format_date(at, "d. MMM", locale=spoken())
