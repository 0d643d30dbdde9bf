"""Places in long lists: which page it is, how many there are, and the way back.

The API's cursors lead forward alone. A page's address keeps those of the last few pages, so that there is a way back.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from app.api.calls import Cursor
from app.dashboard.languages import gettext
from app.dashboard.wording import count, number
from lethe.contract.decisions import COUNTED
from lethe.contract.fields import PageOut

SIZES = ("25", "50", "100", "200")
_SIZE = 50
_KEPT = 10
"""Pages that lead back, one after the other; from further on there is the first page."""
_FIRST = "-"
"""The first page among cursors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A page of a list. `number`: counted from 1; `back`: the cursors of the pages before, the last one last."""

    cursor: str | None = None
    number: int = 1
    back: tuple[str, ...] = ()
    size: int = _SIZE

    @property
    def first(self) -> int:
        """The number of its first entry."""
        return (self.number - 1) * self.size + 1

    @property
    def settings(self) -> dict[str, str]:
        """The part of the address that stays from page to page."""
        return {} if self.size == _SIZE else {"size": str(self.size)}

    @property
    def here(self) -> dict[str, str]:
        """This page, as an address has it."""
        if self.cursor is None:
            return self.settings
        return self.settings | {"cursor": self.cursor, "page": str(self.number), "back": ".".join(self.back)}

    def next(self, cursor: str) -> dict[str, str]:
        back = (*self.back, self.cursor or _FIRST)[-_KEPT:]
        return self.settings | {"cursor": cursor, "page": str(self.number + 1), "back": ".".join(back)}

    @property
    def previous(self) -> dict[str, str] | None:
        """The page before, as an address has it; None where there is none, or it is not known any more."""
        if not self.back or self.number == 1:
            return None
        *further, cursor = self.back
        if cursor == _FIRST:
            return self.settings
        return self.settings | {"cursor": cursor, "page": str(self.number - 1), "back": ".".join(further)}

    def has_all(self, found: PageOut[Any]) -> bool:
        """Return True if the page that was found is the only one."""
        return found.next_cursor is None and self.number == 1

    def extent(self, found: PageOut[Any], one: str, many: str, *, total: int | None = None, most: int = COUNTED) -> str:
        """The entries that the page shows, of how many. `total`: as it was counted, up to `most`; None: it was not."""
        shown = len(found.items)
        if not shown or self.has_all(found):
            return count(shown, one, many)
        last = self.first + shown - 1
        if total is None or total < last:
            total = last if found.next_cursor is None else None
        span = gettext("{first} to {last}").format(first=number(self.first), last=number(last))
        if total is None:
            return span
        of = gettext("{span} of {total}") if total < most else gettext("{span} of {total} or more")
        return of.format(span=span, total=count(total, one, many))


def _place(
    cursor: Cursor = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    back: Annotated[str, Query(max_length=2000, pattern="^[A-Za-z0-9_.-]*$")] = "",
    size: Literal["25", "50", "100", "200"] = "50",
) -> Place:
    if cursor is None:
        return Place(size=int(size))
    return Place(cursor=cursor, number=page, back=tuple(filter(None, back.split("."))), size=int(size))


ThePlace = Annotated[Place, Depends(_place)]
