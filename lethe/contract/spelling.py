"""Advice on a name that is none of those that were expected: these, and the one that was probably meant."""

import difflib
from collections.abc import Iterable

_MOST_LISTED = 20
_LONGEST = 60
_ALIKE = 0.6


def expected(names: Iterable[str], *, found: object = None) -> str:
    """`expected one of age, work; did you mean age?`: the names, and the one that `found` is most like, if any is."""
    known = sorted(names)
    if not known:
        return "expected none here"
    listed = ", ".join(known[:_MOST_LISTED]) + (", ..." if len(known) > _MOST_LISTED else "")
    said = f"expected one of {listed}" if len(known) > 1 else f"expected {listed}"
    meant = nearest(found, known)
    return f"{said}; did you mean {meant}?" if meant is not None and len(known) > 1 else said


def nearest(found: object, names: Iterable[str]) -> str | None:
    """The name that somebody meant who wrote `found`: one that begins so or is contained, or differs in few
    characters."""
    if not isinstance(found, str) or not 0 < len(found) <= _LONGEST:
        return None
    by_letters = {_letters(name): name for name in names if len(name) <= _LONGEST}
    sought = _letters(found)
    near = difflib.get_close_matches(sought, by_letters, n=1, cutoff=_ALIKE)
    if near:
        return by_letters[near[0]]
    parts = [name for letters, name in by_letters.items() if len(sought) > 2 and (sought in letters)]
    return min(parts, key=len, default=None)


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
