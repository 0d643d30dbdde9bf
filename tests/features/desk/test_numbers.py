"""Numbers as people write them in fields."""

from app.features.desk import forms
from tests.tables import each


@each(
    ("written", "found"),
    [("3", 3), ("0.05", 0.05), ("1e-5", 1e-5), ("1/n", "1/n"), ("inf", "inf"), ("nan", "nan"), ("much", "much")],
)
def test_numbers_are_parsed(written: str, found: object) -> None:
    """Whole numbers are parsed as integers. Text that is not a finite number is passed on unchanged, so that the API
    refuses it."""
    assert forms.parse_optional_number(written) == found
    assert type(forms.parse_optional_number(written)) is type(found)


@each("digits", [400, 5000])
def test_a_huge_number_is_text(digits: int) -> None:
    """A number that is too long to compute with is passed on as text."""
    assert forms.parse_number("1" * digits) == "1" * digits


def test_an_empty_field_is_none() -> None:
    """An empty field is parsed as None, and a zero as zero."""
    assert forms.parse_optional_number("") is None
    assert forms.parse_optional_number("0") == 0
