"""Advice on unknown names: the expected names, and the one that was probably meant; and trimmed settings."""

import difflib
import string
from collections.abc import Iterable

_MAX_LISTED_WORDS = 20
_MAX_LENGTH = 60
_ALIKE = 0.6


def expected(names: Iterable[str], *, found: object = None) -> str:
    """Return advice such as `expected one of age, work; did you mean age?`, with the name nearest to `found`."""
    choices = sorted(names)
    if not choices:
        return "expected none here"
    listed = ", ".join(choices[:_MAX_LISTED_WORDS]) + (", ..." if len(choices) > _MAX_LISTED_WORDS else "")
    advice = f"expected one of {listed}" if len(choices) > 1 else f"expected {listed}"
    meant = nearest(found, choices)
    return f"{advice}; did you mean {meant}?" if meant is not None and len(choices) > 1 else advice


def nearest(found: object, names: Iterable[str]) -> str | None:
    """Return the name that `found` probably means: one containing it or differing in few characters; else None."""
    if not isinstance(found, str) or not 0 < len(found) <= _MAX_LENGTH:
        return None
    by_letters = {_letters(name): name for name in names if len(name) <= _MAX_LENGTH}
    letters_found = _letters(found)
    near = difflib.get_close_matches(letters_found, by_letters, n=1, cutoff=_ALIKE)
    if near:
        return by_letters[near[0]]
    parts = [name for letters, name in by_letters.items() if len(letters_found) > 2 and (letters_found in letters)]
    return min(parts, key=len, default=None)


def trimmed(text: str) -> str:
    """Return a setting or secret without the white space, byte order mark and pair of quotes that editors, shells and
    mounted files put around it."""
    text = text.strip(string.whitespace + "\ufeff")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
