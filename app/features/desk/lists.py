"""Positions in long lists: a page's number, its range of entries, and links back.

The API's cursors only lead forward, so a page's URL contains the cursors of the last few pages for its links back.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from app.api.calls import Cursor
from app.features.desk.languages import gettext
from app.features.desk.wording import count, number
from lethe.contract.fields import PageOut
from lethe.features.lists.contract import COUNTED

SIZES = ("25", "50", "100", "200")
_DEFAULT_SIZE = 50
_MAX_CURSORS = 10
"""Maximum number of cursors in a URL. After that many steps back, only a link to the first page remains."""
_FIRST = "-"
"""Cursor that stands for the first page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePosition:
    """Position of a page in a list. `number` counts from 1; `back` has the cursors of previous pages in order."""

    cursor: str | None = None
    number: int = 1
    back: tuple[str, ...] = ()
    size: int = _DEFAULT_SIZE

    @property
    def first(self) -> int:
        """Number of the page's first entry, counted from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def settings(self) -> dict[str, str]:
        """Query parameters that are the same on every page."""
        return {} if self.size == _DEFAULT_SIZE else {"size": str(self.size)}

    @property
    def here(self) -> dict[str, str]:
        """Query parameters of the current page."""
        if self.cursor is None:
            return self.settings
        return self.settings | {"cursor": self.cursor, "page": str(self.number), "back": ".".join(self.back)}

    def next(self, cursor: str) -> dict[str, str]:
        """Return the query parameters of the next page, which begins at `cursor`."""
        back = (*self.back, self.cursor or _FIRST)[-_MAX_CURSORS:]
        return self.settings | {"cursor": cursor, "page": str(self.number + 1), "back": ".".join(back)}

    @property
    def previous(self) -> dict[str, str] | None:
        """Query parameters of the previous page; None on the first page, or if the URL lacks the cursor."""
        if not self.back or self.number == 1:
            return None
        *further, cursor = self.back
        if cursor == _FIRST:
            return self.settings
        return self.settings | {"cursor": cursor, "page": str(self.number - 1), "back": ".".join(further)}

    def has_all(self, page: PageOut[Any]) -> bool:
        """Return True if `page`, which must be the page at this position, is its list's only page."""
        return page.next_cursor is None and self.number == 1

    def extent(
        self, page: PageOut[Any], singular: str, plural: str, *, total: int | None = None, max_total: int = COUNTED
    ) -> str:
        """Return the range of entries that `page` shows, and the total.

        `total` is the number of entries, counted up to `max_total`; None if the entries were not counted.
        """
        length = len(page.items)
        if not length or self.has_all(page):
            return count(length, singular, plural)
        last = self.first + length - 1
        if total is None or total < last:
            total = last if page.next_cursor is None else None
        span = gettext("{first} to {last}").format(first=number(self.first), last=number(last))
        if total is None:
            return span
        of = gettext("{span} of {total}") if total < max_total else gettext("{span} of {total} or more")
        return of.format(span=span, total=count(total, singular, plural))


def _place(
    cursor: Cursor = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    back: Annotated[str, Query(max_length=2000, pattern="^[A-Za-z0-9_.-]*$")] = "",
    size: Literal["25", "50", "100", "200"] = "50",
) -> PagePosition:
    if cursor is None:
        return PagePosition(size=int(size))
    return PagePosition(cursor=cursor, number=page, back=tuple(filter(None, back.split("."))), size=int(size))


ThePlace = Annotated[PagePosition, Depends(_place)]
