"""Numbers as people write them into fields."""

import pytest

from app.dashboard import numbers


@pytest.mark.parametrize(
    ("written", "found"),
    [("3", 3), ("0.05", 0.05), ("1e-5", 1e-5), ("1/n", "1/n"), ("inf", "inf"), ("nan", "nan"), ("much", "much")],
)
def test_reading(written: str, found: object) -> None:
    """Whole numbers stay whole; what is no finite number is left as it is, to be refused by whoever wants one."""
    assert numbers.of_field(written) == found
    assert type(numbers.of_field(written)) is type(found)


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_beyond_all_bounds(digits: int) -> None:
    """A number too long to compute with is text."""
    assert numbers.read("1" * digits) == "1" * digits


def test_nothing_written() -> None:
    """An empty field is None, and zero is not."""
    assert numbers.of_field("") is None
    assert numbers.of_field("0") == 0
