"""Standard forms of DROP, against the examples that California publishes."""

import pytest

from lethe.contract.problems import InputInvalid
from lethe.features.drop.standard import FIELDS, DropList, hash_of, hashes

PUBLISHED = [
    ("email", "Anna.Smith@Domain.com", "anna.smith@domain.com", "KA18MT/ph6IHYjzT9zwETySDQyvSh87YuoSBpOQtkhE="),
    ("phone", "+1(415)555-9317", "4155559317", "vGM7y5n+hBXRSEAklhHDPCbysyNgYTmXdMcagGUOY8E="),
    ("phone", "+84(90)123 4567", "4901234567", "ptzVkgbv9DonwvPCHmXmJ2SEOaolSh37z3ZzY/Gmm+U="),
    ("zip", "91790-3771", "91790", "2FPZucR4x7U8KlM+SFAX4LPGhwNz/PIZUCSUdDh0o/s="),
    ("zip", "M1B 1A1", "m1b1a", "n8L9q8mVeT6Xt9/EeUNiTukGDrkbPJ3DvOEx14uElxk="),
    ("zip", " 00712345", "71234", "aeNUYKh7Xw5sqpxSbSP9eOHsj6iXewbUyavv89DIuhQ="),
    ("zip", " 00300-9999", "300", "mDvWFLta/s5as7YCP3EUfNe2vCMU+dJ690IlQcZVg4k="),
    ("birth_date", "1776-07-04", "17760704", "skXYXxBER6HQTZ3rXSZH1wVGLQ054mS5rbR/bwvzy4I="),
    ("vin", "1HGCM82633A004352", "1hgcm82633a004352", "iNswy1m+0VSt8jAfFrvaiQ1R/0HAbgSwNGkwqo6QBss="),
    ("first_name", "Juan Pablo", "juanpablo", "91hIbrbzNeqHs3o81O5yNrXUj7wDd2shvZ6THKi9qz8="),
    ("last_name", "Martinez", "martinez", "2wRPGbwBNxhShjRczx8GfS2c4cjvs4NJskeWloUNtp8="),
]


@pytest.mark.parametrize(("field", "text", "form", "hashed"), PUBLISHED)
def test_published_examples_are_reproduced(field: str, text: str, form: str, hashed: str) -> None:
    """Each published example has one standard form, whose hash equals the published hash."""
    assert FIELDS[field](text) == (form,)
    assert hash_of(form) == hashed


def test_fields_of_a_list_are_hashed_before_they_are_joined() -> None:
    """The combined hashes of a name with birth date and ZIP code, and of a name with a VIN, equal the published
    values."""
    johnson = {"first_name": "Danielle", "last_name": "Johnson", "birth_date": "1985-07-04", "zip": "91790"}
    assert hashes(DropList.NDZ, johnson) == ("PQOfn1RffEKmqMmNAzDKKaoZCwxWbQZkQzPWmQo9REA=",)
    genesis = {"first_name": "Eve", "last_name": "Genesis", "vin": "1HGCM82633A004352"}
    assert hashes(DropList.NAME_VIN, genesis) == ("rtnDuXIe63jXYQQXW5r07GJ7lSsrib8+46QuKFwkOmk=",)
    assert hashes(DropList.NDZ, johnson | {"zip": " "}) == ()


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Ёлкина", "yolkina"),
        ("Щербакова", "shcherbakova"),
        ("ЪЬЫ", "y"),
        ("Θεοδώρου", "theodoroy"),
        ("Straße", "strasse"),
        ("ŁUKASZ", "lukasz"),
        ("ĲsselMeer", "ijsselmeer"),
        ("Müller", "muller"),
        ("Jose\u0301", "jose"),
        ("İzmir", "izmir"),
        ("D'Angelo-Smith", "dangelosmith"),
        ("田中", "田中"),
    ],
)
def test_names_become_letters_and_digits(text: str, form: str) -> None:
    """Greek, Cyrillic and Latin letters are converted to ASCII, other letters are kept, and diacritics and blanks are
    removed."""
    assert form in FIELDS["first_name"](text)


def test_every_ambiguous_form_is_hashed() -> None:
    """Every form of a dotted capital I or a composed letter is hashed, because California does not define which form is
    used. A sharp s is kept."""
    assert FIELDS["email"]("Mü ller@Straße.de ") == ("müller@straße.de",)
    assert {"müller@x.de", "mu\u0308ller@x.de"} == set(FIELDS["email"]("mu\u0308ller@x.de"))
    assert {"i\u0307@x.tr", "i@x.tr", "İ@x.tr"} == set(FIELDS["email"]("İ@X.TR"))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("birth_date", "07/04/1985"),
        ("birth_date", "1985-13-01"),
        ("vin", "1HG"),
        ("maid", "xyz"),
        ("ctvid", "short"),
        ("phone", "none"),
        ("zip", "0000"),
    ],
)
def test_a_field_without_a_standard_form_is_refused(field: str, text: str) -> None:
    """A field that has no standard form is refused without quoting it."""
    fields = dict.fromkeys(FIELDS, "1HGCM82633A004352") | {"birth_date": "19850704", field: text}
    lists = [
        one
        for one in DropList
        if field in {**{DropList.NDZ: "birth_date zip"}, DropList.NAME_VIN: "vin"}.get(one, one.lower()).split()
    ]
    for drop_list in lists:
        with pytest.raises(InputInvalid) as raised:
            hashes(drop_list, fields)
        assert text not in raised.value.line
    assert lists
