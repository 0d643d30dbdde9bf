"""Noting who was handed which weights."""

from collections.abc import Callable
from typing import Any

import pytest

from app.catalogue import exports, repository
from app.db import Actor
from app.installations import Installation
from lethe.contract.problems import WeightsDestroyed

Make = Callable[..., dict[str, Any]]


def test_weights_that_were_superseded_while_they_were_read_are_not_handed_out(
    installation: Installation, by: Actor, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """Nothing is noted, and so nothing sent, of a version that is no longer in service."""
    model = new_model(new_dataset()["id"])
    work()
    forget("p1")
    work()
    with pytest.raises(WeightsDestroyed), installation.database.writing(by=by) as session:
        exports.note(session, model_id=model["id"], number=1)
    with installation.database.writing(by=by) as session:
        noted = exports.note(session, model_id=model["id"], number=2)
    with installation.database.reading(by=by) as session:
        [found] = repository.exports(session, model_id=model["id"], version=None, limit=5, cursor=None).items
    assert (found.id, found.version, found.api_key_id) == (noted.id, 2, by.name)
