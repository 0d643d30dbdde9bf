"""Tangent models in a dry run: the rows are a worker's, and refusals are the gateway's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lethe.contract.problems import PreconditionFailed, Problem, RowInvalid
from lethe.encoding.rows import unit_rows
from lethe.encoding.schema import parse_schema
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import Tangent, network_inputs, scores
from lethe.features.tables import networks
from lethe.features.tables.previewing import preview
from lethe.proof.network import Linearisation
from tests.features.networks import nets
from tests.features.networks.networks import exported, perceptron
from tests.features.tables.encoded import SCHEMA, X, table

ONE: dict[str, Any] = {"schema": SCHEMA, "epsilons": [8.0], "l2": [0.003]}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(exported(perceptron(nets.WIDTH, 2), nets.WIDTH))
    return path


@pytest.mark.slow
def test_scores_match_a_served_model(network: Path) -> None:
    """A dry run computes the same scores and gradients as the tangent model on the same encoded rows, and each row has
    norm at most 1."""
    opened = networks.opened(network, parse_schema(SCHEMA))
    [last, *_] = [name for name, shape in opened.parameters.items() if shape == [2, 8]]
    chosen = Linearisation(layers=(last,))
    rows = unit_rows(X)
    told: list[int] = []
    found = networks.rows_of(opened, chosen, rows, num_scores=1, progress=lambda _, done, total: told.append(done))
    assert told == [64, 120]
    tangent = Tangent(Graph(network.read_bytes()), chosen, num_scores=1)
    weights = np.random.default_rng(1).normal(size=(1, tangent.num_parameters))
    np.testing.assert_allclose(found.scores(weights), scores(tangent, weights, rows), rtol=1e-4, atol=1e-5)
    inputs = torch.from_numpy(network_inputs(rows))
    pull = np.random.default_rng(2).normal(size=(len(rows), 1))
    theirs = tangent.gradient(
        torch.tensor(weights), inputs, tangent.scales(inputs), lambda _, at: torch.tensor(pull, dtype=torch.float32)[at]
    )
    np.testing.assert_allclose(found.pulled(pull)[0], theirs.numpy(), rtol=1e-3, atol=1e-4)
    assert (np.linalg.norm(found.numbers, axis=1) <= 1).all()


@pytest.mark.soak
def test_a_dry_run_trains_a_tangent_model(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run trains a network's tangent in the named layers, with the same noise and passes as a linear model. A
    network that does not fit the dataset, unknown layers, a numeric target, a second moment and too many parameters are
    refused."""
    names = [*networks.opened(network, parse_schema(SCHEMA)).parameters]
    found = preview(table(), network=network, tangent={"layers": names, "offset": False}, **ONE)
    assert (found.num_features, found.num_moved) == (nets.WIDTH, 8 * nets.WIDTH + 8 + 2 * 8 + 2)
    [plan], [linear] = found.plans, preview(table(), **ONE).plans
    assert (plan.noise, plan.learn_passes, plan.request_passes) == (
        linear.noise,
        linear.learn_passes,
        linear.request_passes,
    )
    assert plan.accuracy_without_noise > found.majority
    assert found.second_moment is None
    ranked = preview(table(), network=network, tangent={"layers": names, "rank": 1}, **ONE)
    assert ranked.num_moved is not None
    assert ranked.num_moved < 50
    asked: dict[str, Any]
    for asked, said in (
        ({"tangent": {"layers": names}}, "network"),
        ({"network": network, "tangent": {"layers": ["fc"]}}, "tangent"),
        ({"network": network, "tangent": {"layers": [names[0]] * 2}}, "tangent"),
        ({"network": network, "tangent": {"layers": names}, "objective": "smoothed_hinge"}, "tangent"),
        ({"network": network, "tangent": {"layers": names}, "second_moment": 0.5}, "second_moment"),
    ):
        with pytest.raises(PreconditionFailed) as refusal:
            preview(table(), **ONE, **asked)
        assert refusal.value.errors[0].path == said
    monkeypatch.setattr(networks, "_MAX_NUMBERS", 100)
    with pytest.raises(Problem, match="a dry run keeps 100"):
        preview(table(), network=network, tangent={"layers": names}, **ONE)


class Exponential(torch.nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.exp(rows)


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1000.0, 50.0])
def test_the_error_for_a_nonfinite_row_names_the_line(tmp_path: Path, largest: float) -> None:
    """A row is refused if its derivatives or their squares are not finite. The error states the line number without
    quoting the row."""
    linear = torch.nn.Linear(nets.WIDTH, 1)
    torch.nn.init.ones_(linear.weight)
    path = tmp_path / "net.onnx"
    path.write_bytes(exported(torch.nn.Sequential(linear, Exponential()), nets.WIDTH))
    x = X.copy()
    x[70] = largest / nets.WIDTH
    opened = networks.opened(path, parse_schema(SCHEMA))
    chosen = Linearisation(layers=tuple(opened.parameters))
    with pytest.raises(RowInvalid) as refusal:
        networks.rows_of(opened, chosen, unit_rows(x), num_scores=1, progress=lambda *_: None)
    assert [one.path for one in refusal.value.errors] == ["line 71"]
    assert str(int(largest)) not in refusal.value.line
