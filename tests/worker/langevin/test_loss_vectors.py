"""The published vectors of the losses, recomputed with mpmath and compared with the slopes of both passes."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch

from lethe.encoding.targets import UNIT
from lethe.proof.losses import Objective, gradient_bound
from tests.lethe.proof import loss_vectors
from tests.worker import passes
from worker.langevin.gradient import HostRows
from worker.langevin.losses import Loss

VECTORS = json.loads(loss_vectors.FILE.read_text())
PASSES: dict[str, Callable[..., AbstractContextManager[Any]]] = {"host": HostRows} | passes.OTHERS


def test_the_file_matches_mpmath() -> None:
    """The file of loss vectors contains exactly what mpmath computes and covers every objective."""
    assert loss_vectors.FILE.read_text() == loss_vectors.written()
    assert {vector["objective"] for vector in VECTORS} == set(Objective)


@pytest.mark.parametrize("name", PASSES)
def test_gradients_match_the_slopes(name: str) -> None:
    """Along the row, the gradient of one row of norm 1 equals the slopes in the row's test vector, to single precision.
    In all other directions it is zero."""
    for vector in VECTORS:
        objective, num_classes = Objective(vector["objective"]), vector["num_classes"]
        row, label = np.array([[0.0, 1.0, 0.0]], np.float32), np.array([vector["label"]], np.int32)
        parameters = torch.zeros(len(vector["scores"]), 3, dtype=torch.float64)
        parameters[:, 1] = torch.tensor(vector["scores"], dtype=torch.float64)
        weights = np.array([vector["weight"] * UNIT], np.int32)
        described = {"num_classes": num_classes, "loss": Loss(objective, vector["loss_width"])}
        with PASSES[name](row, label, weights, **described) as rows:
            found = rows.gradient(parameters).numpy()
        expected = np.zeros_like(found)
        expected[:, 1] = vector["slopes"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(vector))


def test_no_slope_is_steeper_than_the_constant() -> None:
    """The slopes in a test vector never exceed the row's weight times the constant M of the smallest ball that contains
    the vector's scores."""
    for vector in VECTORS:
        described: dict[str, Any] = {"loss_width": vector["loss_width"], "radius": np.linalg.norm(vector["scores"])}
        bound = gradient_bound(Objective(vector["objective"]), vector["num_classes"], **described)
        assert np.linalg.norm(vector["slopes"]) <= bound * vector["weight"] * (1 + 1e-12), vector
