"""The picture of the README."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import forgetting

NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture(scope="module")
def life() -> forgetting.Life:
    """Return the life that the picture shows. Being a fixture, it is not computed during test collection."""
    return forgetting.life()


def test_the_picture_matches_the_accountant(life: forgetting.Life) -> None:
    """The picture in docs/ matches the current accountant to within a tenth of a pixel."""
    kept, drawn = forgetting.PICTURE.read_text(), forgetting.drawn(life)
    assert NUMBER.sub("", kept) == NUMBER.sub("", drawn)
    numbers = [float(number) for number in NUMBER.findall(drawn)]
    assert [float(number) for number in NUMBER.findall(kept)] == pytest.approx(numbers, rel=0, abs=0.11)
    ElementTree.fromstring(kept)


def test_versions_meet_the_target_for_good(life: forgetting.Life) -> None:
    """Each person's influence is above the target when the person's request is submitted, meets the target once the
    next version is published, and falls with every later version."""
    for number, curve in enumerate(life.people):
        published = [forgetting.at(curve, passes) for passes in life.versions[number:]]
        assert curve[0][1] > forgetting.EPSILON >= published[0]
        assert published == sorted(published, reverse=True)
