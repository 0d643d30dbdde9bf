"""Numbers as people write them in fields."""

from app.features.desk import forms
from tests.tables import each


@each(
    ("written", "found"),
    [("3", 3), ("0.05", 0.05), ("1e-5", 1e-5), ("1/n", "1/n"), ("inf", "inf"), ("nan", "nan"), ("much", "much")],
)
def test_numbers_are_parsed(written: str, found: object) -> None:
    """Whole numbers stay whole; text that is not a finite number is kept, and refused by its consumer."""
    assert forms.parse_optional_number(written) == found
    assert type(forms.parse_optional_number(written)) is type(found)


@each("digits", [400, 5000])
def test_a_huge_number_is_text(digits: int) -> None:
    """A number too long to compute with is treated as text."""
    assert forms.parse_number("1" * digits) == "1" * digits


def test_an_empty_field_is_none() -> None:
    """An empty field is None, and zero is not."""
    assert forms.parse_optional_number("") is None
    assert forms.parse_optional_number("0") == 0
