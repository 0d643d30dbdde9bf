"""Chains of tangent models: the same steps, on rows that go through a public network."""

import copy
import dataclasses
import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.vectors import encode_vectors
from lethe.encoding.targets import UNIT
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import Tangent, network_inputs
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from lethe.proof.network import Linearisation, PublicNetwork
from tests.features.networks.networks import exported, perceptron
from tests.worker.langevin.conftest import mechanism_of
from worker.features.networks import engines as tangent
from worker.features.networks.engines import TangentRows, scored, tangent_of
from worker.langevin import chain, engines, init

NUM_FEATURES = 5
LAYERS = ("0.weight", "0.bias", "2.weight", "2.bias")
NETWORKS = {outputs: exported(perceptron(NUM_FEATURES, outputs), NUM_FEATURES) for outputs in (1, 3)}


def on_network(
    content: bytes, num_parameters: int, *, num_classes: int = 3, num_slots: int = 40, **settings: Any
) -> Mechanism:
    network = PublicNetwork(
        sha256=hashlib.sha256(content).hexdigest(),
        licence="MIT",
        opset=20,
        linearisation=Linearisation(layers=LAYERS),
    )
    chosen = {"l2": 0.05, "step_size": 1.0, "noise_scale": 0.1, "radius": 50.0, "grid": 0.0} | settings
    return mechanism_of(
        num_slots=num_slots, num_classes=num_classes, num_parameters=num_parameters, network=network, **chosen
    )


def of_three(**settings: Any) -> tuple[bytes, Mechanism]:
    return NETWORKS[3], on_network(NETWORKS[3], 8 * NUM_FEATURES + 8 + 8 * 3 + 3, **settings)


def records(num_rows: int, num_classes: int = 3, *, seed: int = 0) -> tuple[Any, Any]:
    drawn = np.random.default_rng(seed)
    rows = encode_vectors(drawn.standard_normal((num_rows, NUM_FEATURES)))
    return rows, drawn.integers(0, num_classes, num_rows).astype(np.int32)


def ran(mechanism: Mechanism, content: bytes, features: Any, labels: Any, *, noise: Any, **settings: Any) -> Any:
    return chain.run(
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=init.origin_of(mechanism, features.shape[1]),
        noise=noise,
        on_progress=lambda steps_done: None,
        backend=engines.Backend(network=content),
        **({"steps": 5} | settings),
    ).parameters


def rows_of(mechanism: Mechanism, content: bytes, features: Any, labels: Any) -> TangentRows:
    return TangentRows(features, labels, mechanism=mechanism, network=content)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.LOGISTIC_REGRESSION, Objective.MULTILABEL_LOGISTIC_REGRESSION])
def test_the_gradient_matches_each_record(objective: Objective) -> None:
    """A batch's gradient equals the sum, over its records, of the scaled Jacobian times the derivative of the textbook
    loss. The check during a run accepts this gradient and rejects others."""
    content, mechanism = of_three(objective=objective)
    features, labels = records(40, 3 if objective is Objective.LOGISTIC_REGRESSION else 8)
    parameters = torch.from_numpy(np.random.default_rng(1).standard_normal((1, mechanism.num_parameters)))
    model = tangent_of(mechanism, content, dtype=torch.float64)
    inputs = torch.from_numpy((features[:, :-1] / features[:, -1:]).astype(np.float64))[:16]
    scales = model.scales(inputs).double()
    at = parameters[0].clone().requires_grad_()
    own = model.scores(torch.zeros(mechanism.num_parameters), inputs, scales)
    each = own + scales[:, None] * torch.einsum("nkp,p->nk", model.jacobians(inputs), at)
    there = torch.from_numpy(labels[:16]).long()
    if objective is Objective.LOGISTIC_REGRESSION:
        loss = torch.nn.functional.cross_entropy(each, there, reduction="sum")
    else:
        has = (there[:, None] >> torch.arange(3) & 1).double()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(each, has, reduction="sum")
    (expected,) = torch.autograd.grad(loss, at)
    with rows_of(mechanism, content, features, labels) as rows:
        ours = rows.gradient(parameters, slice(0, 16))
        torch.testing.assert_close(ours[0], expected, rtol=1e-4, atol=1e-4)
        assert not rows.differs(ours, parameters, slice(0, 16), bound=0.01)
        assert rows.differs(ours, parameters, slice(0, 15), bound=0.01)
        assert rows.differs(ours + 0.01, parameters, slice(0, 16), bound=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [1, 700])
def test_few_jacobians_are_held_at_once(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    """The gradient check computes as many Jacobians at once as its memory limit permits, but always at least one. Its
    verdict does not depend on the limit."""
    content, mechanism = of_three()
    features, labels = records(16)
    parameters = torch.from_numpy(np.random.default_rng(1).standard_normal((1, mechanism.num_parameters)))
    held = []
    compute = Tangent.jacobians

    def counted(self: Tangent, inputs: torch.Tensor) -> torch.Tensor:
        held.append(len(inputs))
        return compute(self, inputs)

    monkeypatch.setattr(tangent, "_BLOCK_NUMBERS", numbers)
    with rows_of(mechanism, content, features, labels) as rows:
        ours = rows.gradient(parameters)
        monkeypatch.setattr(Tangent, "jacobians", counted)
        assert not rows.differs(ours, parameters, slice(None), bound=0.01)
        assert rows.differs(ours + 0.01, parameters, slice(None), bound=0.01)
    at_once = max(1, numbers // (3 * mechanism.num_parameters))
    assert max(held) == at_once
    assert sum(held) == (1 + 4) * len(features)


def at_a_kink(layer: torch.nn.Linear) -> Any:
    """Return a row for which a unit of the layer is active in single precision and inactive in double precision, or
    vice versa."""
    exact = copy.deepcopy(layer).double()
    with torch.no_grad():
        for _ in range(10_000):
            drawn = torch.randn(1, layer.in_features, dtype=torch.float64)
            drawn[0, 0] -= exact(drawn)[0, 0] / exact.weight[0, 0]
            row = encode_vectors(drawn.numpy())
            inputs = torch.from_numpy(network_inputs(row))
            if (layer(inputs)[0, 0] > 0) != (exact(inputs.double())[0, 0] > 0):
                return row[0]
    raise AssertionError("no row was found")


@pytest.mark.slow
def test_a_row_at_a_kink_is_tolerated() -> None:
    """The gradient check tolerates a row for which a ReLU differs between single and double precision. It rejects a
    difference that is too large to be explained by such a row, and it detects a missing row that is not at a kink."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(NUM_FEATURES, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with torch.no_grad():
        network[2].weight[:] *= 20
    content = exported(network, NUM_FEATURES)
    mechanism = on_network(content, 8 * NUM_FEATURES + 8 + 8 * 3 + 3)
    features, labels = records(16)
    parameters = torch.from_numpy(np.random.default_rng(1).standard_normal((1, mechanism.num_parameters)))
    for row in range(0, 16, 2):
        features[row] = at_a_kink(network[0])
    with rows_of(mechanism, content, features, labels) as rows:
        for row in range(16):
            ours = rows.gradient(parameters, slice(row, row + 1))
            assert not rows.differs(ours, parameters, slice(row, row + 1), bound=0.01)
            assert rows.differs(ours + 1, parameters, slice(row, row + 1), bound=0.01)


def test_gradients_are_scaled_by_row_weights() -> None:
    """A record's gradient is scaled by the record's weight. A record of weight 0 is treated like a null row, and
    weights of 1 leave the gradient bit-identical. The gradient check detects omitted weights."""
    content, mechanism = of_three()
    features, labels = records(40)
    parameters = torch.from_numpy(np.random.default_rng(1).standard_normal((1, mechanism.num_parameters)))
    weights = np.random.default_rng(2).integers(0, UNIT, 40).astype(np.int32)
    weights[3], here = 0, slice(0, 12)
    with rows_of(mechanism, content, features, labels) as rows:
        plain = rows.gradient(parameters, here)
        each = [rows.gradient(parameters, slice(row, row + 1)) for row in range(12)]
        expected = sum(weight / UNIT * one for weight, one in zip(weights.tolist(), each, strict=False))
    with TangentRows(features, labels, weights, mechanism=mechanism, network=content) as rows:
        ours = rows.gradient(parameters, here)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
        assert not rows.differs(ours, parameters, here, bound=0.01)
        assert rows.differs(plain, parameters, here, bound=0.01)
    ones = np.full(40, UNIT, np.int32)
    with TangentRows(features, labels, ones, mechanism=mechanism, network=content) as rows:
        assert torch.equal(rows.gradient(parameters, here), plain)
    features[3] = 0
    with TangentRows(features, labels, weights, mechanism=mechanism, network=content) as rows:
        assert torch.equal(rows.gradient(parameters, here), ours)


def test_gradients_are_scaled_by_class_weights() -> None:
    """A record's gradient is scaled by the weight of the record's class."""
    content, mechanism = of_three(class_weights=(1.0, 0.5, 0.25))
    features, labels = records(40)
    at = torch.from_numpy(np.random.default_rng(1).standard_normal((1, mechanism.num_parameters)))
    with rows_of(mechanism, content, features, labels) as rows:
        ours = rows.gradient(at)
        assert not rows.differs(ours, at, slice(0, 40), bound=0.01)
    plain = dataclasses.replace(mechanism, class_weights=None)
    expected = torch.zeros_like(ours)
    for label, weight in enumerate((1.0, 0.5, 0.25)):
        of_class = np.where((labels == label)[:, None], features, 0).astype(np.float32)
        with rows_of(plain, content, of_class, labels) as rows:
            expected += weight * rows.gradient(at)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_null_row_has_no_gradient() -> None:
    """An erased slot contributes no gradient, even though the network returns a nonzero output for an input of
    zeros."""
    content, mechanism = of_three()
    features, labels = records(40)
    without = features.copy()
    without[7:] = 0
    at = torch.zeros(1, mechanism.num_parameters, dtype=torch.float64)
    with rows_of(mechanism, content, without, labels) as rows:
        found = rows.gradient(at)
        assert not rows.gradient(at, slice(7, 40)).any()
    with rows_of(mechanism, content, features, labels) as rows:
        torch.testing.assert_close(found, rows.gradient(at, slice(0, 7)), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_chains_on_equal_data_contract(replayable_noise: Any) -> None:
    """Two runs with the same noise but different initial weights approach each other by the contraction factor at every
    step, in all of the network's weights."""
    content, mechanism = of_three()
    features, labels = records(40)
    far = np.random.default_rng(2).standard_normal((1, mechanism.num_parameters))
    settings = {"features": features, "labels": labels, "on_progress": lambda steps_done: None}
    settings["backend"] = engines.Backend(network=content)
    for steps in (1, 3, 9):
        ends = [
            chain.run(mechanism=mechanism, initial=start, steps=steps, noise=replayable_noise(1), **settings).parameters
            for start in (np.zeros_like(far), far)
        ]
        apart = float(np.linalg.norm(ends[0] - ends[1]))
        assert apart <= mechanism.contraction**steps * float(np.linalg.norm(far)) * (1 + 1e-5)


def test_one_record_moves_a_step_by_at_most_the_sensitivity(replayable_noise: Any) -> None:
    """Replacing a null record with a real one changes a noiseless step by at most eta M / n, whatever the network
    computes for the record."""
    content, mechanism = of_three()
    features, labels = records(40)
    features[0] = encode_vectors(np.full((1, NUM_FEATURES), 1e6))
    without = features.copy()
    without[0] = 0
    ends = [
        ran(mechanism, content, one, labels, noise=replayable_noise(3), steps=1, first_step=0)
        for one in (features, without)
    ]
    moved = float(np.linalg.norm(ends[0] - ends[1]))
    assert 0 < moved <= mechanism.step_size * mechanism.gradient_bound / mechanism.num_slots * (1 + 1e-5)


@pytest.mark.slow
def test_two_classes_have_one_score(replayable_noise: Any) -> None:
    """A network with one output is trained on two classes, using the sign of the label."""
    content = NETWORKS[1]
    mechanism = on_network(content, 8 * NUM_FEATURES + 8 + 8 + 1, num_classes=2, l2=0.001, noise_scale=1e-4)
    features, labels = records(40, 2)
    labels = (features[:, 0] > 0).astype(np.int32)
    learned = ran(mechanism, content, features, labels, noise=replayable_noise(4), steps=300)
    (found, _), *_ = scored(mechanism, content, learned, [(features, labels)])
    assert float(((found[:, 0] > 0) == labels).mean()) > 0.9


@pytest.mark.slow
def test_a_row_does_not_depend_on_another() -> None:
    """The scale, scores and gradient of a row do not depend on other rows, even if the network adds the mean output of
    the batch."""

    class Raised(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron(NUM_FEATURES, 3)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            scores = self.inner(rows)
            return scores + scores.transpose(0, 1).mean(1)

    chosen = Linearisation(layers=tuple(f"inner.{name}" for name in LAYERS), least_norm=1e-3)
    tangent = Tangent(Graph(exported(Raised(), NUM_FEATURES)), chosen, num_scores=3)
    rows = torch.randn(5, NUM_FEATURES) * torch.tensor([1.0, 1.0, 1.0, 1.0, 100.0])[:, None]
    parameters = torch.randn(1, tangent.num_parameters)
    scales = tangent.scales(rows)
    scores = tangent.scores(parameters, rows, scales)
    whole = tangent.gradient(parameters, rows, scales, lambda found, at: found.softmax(1))
    parts = torch.zeros_like(whole)
    for place in range(len(rows)):
        row, its_scale = rows[place : place + 1], scales[place : place + 1]
        torch.testing.assert_close(tangent.scales(row), its_scale)
        torch.testing.assert_close(tangent.scores(parameters, row, its_scale), scores[place : place + 1])
        parts += tangent.gradient(parameters, row, its_scale, lambda found, at: found.softmax(1))
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4)


def test_a_network_with_another_digest_is_refused(replayable_noise: Any) -> None:
    """A network is refused if its SHA-256 differs from the digest in the mechanism."""
    _, mechanism = of_three()
    features, labels = records(40)
    with pytest.raises(ValueError, match="Expected the network"):
        ran(mechanism, NETWORKS[1], features, labels, noise=replayable_noise(6))
