"""Standard forms and hashes of California's Delete Request and Opt-out Platform (DROP), OpenAPI 1.2.0.

DROP publishes SHA-256 hashes (base64) of identifiers in its own standard forms. Source:
https://privacy.ca.gov/drop-for-data-brokers/technical-specifications/working-with-data/

Where that page is ambiguous, functions return every form that it allows, and each form is hashed. The page leaves open
how e-mail addresses are composed in Unicode, how a dotted capital I is lowercased, and how names are normalised.
"""

import base64
import datetime
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from lethe.contract.problems import FieldError, InputInvalid


class DropList(StrEnum):
    """Consumer deletion list published by DROP."""

    EMAIL = "Email"
    PHONE = "Phone"
    NDZ = "NDZ"
    NAME_VIN = "NameVIN"
    MAID = "MAID"
    CTVID = "CTVID"


Forms = tuple[str, ...]
_DOTTED_I = "\u0130"
_ZIP_PLUS_4 = re.compile(r"\s*([0-9]{5})-[0-9]{4}\s*")
_DATE = re.compile(r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})")
_LATIN = str.maketrans("øðłđħŋıŀ", "odldhnil") | str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th", "ĳ": "ij"})
_GREEK = str.maketrans("αβγδεζηικλμνξοπρσςτυφω", "avgdeziiklmnxoprsstyfo") | str.maketrans(
    {"θ": "th", "χ": "ch", "ψ": "ps"}
)
_CYRILLIC = str.maketrans("абвгдезийклмнопрстуфыэєіїґў", "abvgdeziyklmnoprstufyeeiigu") | str.maketrans(
    {"ё": "yo", "ж": "zh", "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch"}
    | {"ъ": None, "ь": None, "ю": "yu", "я": "ya"}
)
_LETTERS = _LATIN | _GREEK | _CYRILLIC
"""ASCII spelling of letters that do not decompose into an ASCII letter and marks."""


def email(text: str) -> Forms:
    """Return the standard forms of an e-mail address: lower case, without white space."""
    bare = "".join(text.replace("\ufeff", "").split())
    return _distinct(
        lowered
        for composed in (bare, unicodedata.normalize("NFC", bare))
        for lowered in (
            composed.lower(),
            composed.replace(_DOTTED_I, "i").lower(),
            _DOTTED_I.join(part.lower() for part in composed.split(_DOTTED_I)),
        )
    )


def phone(text: str) -> Forms:
    """Return the standard form of a phone number: its last ten digits."""
    digits = "".join(
        str(unicodedata.decimal(character)) for character in text if unicodedata.decimal(character, None) is not None
    )
    return _distinct([digits[-10:]])


def name(text: str) -> Forms:
    """Return the standard forms of a first or last name: lower case, with Greek, Cyrillic and Latin letters converted
    to ASCII, reduced to letters and digits."""
    folded = [
        "".join(_folded(character) for character in unicodedata.normalize(form, text.lower()))
        for form in ("NFC", "NFKC")
    ]
    return _distinct(folded + [unicodedata.normalize("NFKD", form) for form in folded])


def _folded(letter: str) -> str:
    base = unicodedata.normalize("NFD", letter)[0]
    if ord(letter) not in _LETTERS and (base.isascii() or ord(base) in _LETTERS):
        letter = base
    return "".join(filter(str.isalnum, letter.translate(_LETTERS)))


def birth_date(text: str) -> Forms:
    """Return the standard form, YYYYMMDD, of a date written as YYYY-MM-DD or YYYYMMDD. Other spellings have no standard
    form, because they are ambiguous: 04/07 may be in April or July."""
    if (parts := _DATE.fullmatch(text.strip())) is None:
        return ()
    try:
        return (datetime.date(*map(int, parts.groups())).strftime("%Y%m%d"),)
    except ValueError:
        return ()


def zip_code(text: str) -> Forms:
    """Return the standard form of a ZIP or postal code: its first five letters and digits in lower case, without the +4
    suffix or leading zeros."""
    plus_4 = _ZIP_PLUS_4.fullmatch(text)
    return _distinct([_alphanumeric(plus_4[1] if plus_4 else text).lstrip("0")[:5]])


def vin(text: str) -> Forms:
    """Return the standard form of a vehicle identification number: its 17 letters and digits in lower case."""
    return _of_length(_alphanumeric(text), 17, 17)


def maid(text: str) -> Forms:
    """Return the standard form of a mobile advertising id: its 32 hexadecimal digits in lower case."""
    return _of_length("".join(re.findall("[0-9a-f]", text.lower())), 32, 32)


def ctvid(text: str) -> Forms:
    """Return the standard form of a connected-television id: its 8 to 32 letters and digits in lower case."""
    return _of_length(_alphanumeric(text), 8, 32)


FIELDS: Mapping[str, Callable[[str], Forms]] = {
    "email": email,
    "phone": phone,
    "maid": maid,
    "ctvid": ctvid,
    "first_name": name,
    "last_name": name,
    "birth_date": birth_date,
    "zip": zip_code,
    "vin": vin,
}
"""Function that returns a field's standard forms, for each field."""
FIELDS_OF: Mapping[DropList, tuple[str, ...]] = {
    DropList.EMAIL: ("email",),
    DropList.PHONE: ("phone",),
    DropList.NDZ: ("first_name", "last_name", "birth_date", "zip"),
    DropList.NAME_VIN: ("first_name", "last_name", "vin"),
    DropList.MAID: ("maid",),
    DropList.CTVID: ("ctvid",),
}
"""Fields hashed for each list, in hashing order."""


def hash_of(text: str) -> str:
    """Return DROP's hash (base64) of a standard form."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def hashes(drop_list: DropList, fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hashes under which a list can name a person; empty if any field that the list needs is empty.

    If a list has several fields, the fields are hashed separately, and then their hashes are hashed together. Raises
    `InputInvalid`, without the value, for a field that has no standard form.
    """
    forms = []
    for field in FIELDS_OF[drop_list]:
        if not (text := fields.get(field, "").strip()):
            return ()
        if not (standard := FIELDS[field](text)):
            raise InputInvalid("A field has no standard form of DROP.", [FieldError(field, _EXPECTED[field])])
        forms.append([hash_of(form) for form in standard])
    if len(forms) == 1:
        return tuple(forms[0])
    return _distinct(hash_of("".join(combination)) for combination in itertools.product(*forms))


_EXPECTED = {
    "email": "expected an e-mail address",
    "phone": "expected a phone number",
    "maid": "expected 32 hexadecimal digits",
    "ctvid": "expected 8 to 32 letters and digits",
    "first_name": "expected a name",
    "last_name": "expected a name",
    "birth_date": "expected YYYY-MM-DD",
    "zip": "expected a ZIP code",
    "vin": "expected 17 letters and digits",
}


def _alphanumeric(text: str) -> str:
    return "".join(re.findall("[0-9a-z]", text.lower()))


def _of_length(text: str, at_least: int, at_most: int) -> Forms:
    return (text,) if at_least <= len(text) <= at_most else ()


def _distinct(forms: Iterable[str]) -> Forms:
    return tuple(dict.fromkeys(filter(None, forms)))
