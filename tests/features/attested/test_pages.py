"""The trainers page."""

from collections.abc import Callable
from typing import Any

from tests.features.attested.conftest import AttestedTrainer
from tests.features.desk.browsing import Browser


def test_the_page_lists_trainers(
    officer: Browser,
    somebody_with: Callable[..., Browser],
    trainer: AttestedTrainer,
    forget: Callable[..., dict[str, Any]],
) -> None:
    """Officers see each trainer and its number of waiting requests in their own language."""
    forget("ada")
    page = officer.get("/admin/attested-trainers").text
    assert trainer.id in page
    assert "Train again by" in page
    assert "<td>1</td>" in page
    assert "Neu trainieren bis" in officer.get("/admin/attested-trainers", **{"Accept-Language": "de"}).text
