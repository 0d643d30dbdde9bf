"""The linear model of a network around its weights, compared with closed forms and automatic differentiation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import SLACK, Tangent
from lethe.proof.network import Linearisation
from tests.features.networks.networks import convolutions, exported, perceptron
from tests.features.networks.test_operators import as_onnxruntime

ALL = ("0.weight", "0.bias", "2.weight", "2.bias")


def rows_of(num_rows: int, num_features: int, *, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((num_rows, num_features)).astype(np.float32))


def tangent(content: bytes, num_scores: int, dtype: torch.dtype = torch.float64, **chosen: object) -> Tangent:
    graph = Graph(content).to(torch.device("cpu"), dtype)
    return Tangent(graph, Linearisation(**({"layers": ALL} | chosen)), num_scores=num_scores)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "num_features"), [(perceptron(5, 3), 5), (convolutions(3), 64), (convolutions(4, side=12), 144)]
)
def test_networks_match_onnxruntime(made, num_features):
    """A network exported by torch returns the same result as onnxruntime for any number of rows."""
    content, rows = exported(made, num_features), rows_of(7, num_features)
    graph = Graph(content)
    for some in (rows, rows[:1]):
        ours = graph(some)
        np.testing.assert_allclose(ours, as_onnxruntime(content, some.numpy()), rtol=1e-4, atol=1e-5)


def test_the_tangent_of_a_linear_network_is_the_linear_model():
    """The tangent of the network W x + b with respect to W and b is softmax regression on the rows (x, 1), normalised
    to norm 1."""
    content = exported(torch.nn.Sequential(torch.nn.Linear(4, 3)), 4)
    model = tangent(content, 3, layers=("0.weight", "0.bias"), offset=False)
    rows = rows_of(6, 4).double()
    with_bias = torch.cat((rows, torch.ones(6, 1)), 1)
    norms = with_bias.norm(dim=1)
    scales = model.scales(rows)
    torch.testing.assert_close(scales.double(), 1 / ((1 + 2.0**-10) * norms), rtol=1e-6, atol=0)
    moves = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 5)))
    flat = torch.cat((moves[:, :4].flatten(), moves[:, 4]))
    expected = with_bias @ moves.T * scales[:, None]
    torch.testing.assert_close(model.scores(flat, rows, scales.double()), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_outputs=st.sampled_from([1, 2, 3, 5]),
    size=st.floats(1e-4, 1e4),
    rank=st.integers(0, 3),
    least=st.sampled_from([1e-6, 1.0]),
)
def test_scaled_rows_have_norm_at_most_one(seed, num_outputs, size, rank, least):
    """The scaled Jacobian of any row, however large, has operator norm <= 1. Hence no gradient exceeds sqrt(2), or 1
    for two classes, and no curvature exceeds 1/2, or 1/4 for two classes."""
    content = exported(perceptron(4, num_outputs, seed=seed % 7), 4)
    num_scores = 1 if num_outputs <= 2 else num_outputs
    model = tangent(content, num_scores, torch.float32, rank=rank, least_norm=least)
    rows = size * rows_of(5, 4, seed=seed)
    jacobians = model.jacobians(rows).double() * model.scales(rows).double()[:, None, None]
    norms = torch.linalg.matrix_norm(jacobians, 2)
    assert bool((norms <= 1).all())
    scores = 10 * rows_of(5, num_scores, seed=seed).double()
    if num_scores == 1:
        chances = scores.sigmoid()
        slopes, curvatures = chances - 1, (chances * (1 - chances))[:, :, None]
    else:
        chances = scores.softmax(1)
        slopes = chances - torch.eye(num_scores)[0]
        curvatures = torch.diag_embed(chances) - chances[:, :, None] * chances[:, None, :]
    bend = 0.25 if num_scores == 1 else 0.5
    assert bool((torch.einsum("nk,nkp->np", slopes, jacobians).norm(dim=1) <= (1 if num_scores == 1 else 2**0.5)).all())
    hessians = jacobians.mT @ curvatures @ jacobians
    assert bool((torch.linalg.eigvalsh(hessians)[:, -1] <= bend + 1e-12).all())


class Attending(torch.nn.Module):
    """Self-attention over four positions of three numbers each; it multiplies matrices that both depend on weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner, self.outer = torch.nn.Linear(3, 5), torch.nn.Linear(5, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        places = self.inner(rows.unflatten(1, (4, 3)))
        mixed = torch.softmax(places @ places.transpose(1, 2), -1) @ places
        return self.outer(torch.tanh(mixed)).mean(1)


def grouped() -> torch.nn.Sequential:
    """Return a grouped convolution, whose Jacobian is computed row by row, followed by a convolution whose Jacobian is
    not."""
    torch.manual_seed(4)
    first, second = torch.nn.Conv2d(2, 4, 2, groups=2), torch.nn.Conv2d(4, 3, 2, stride=2, padding=1, dilation=2)
    parts = (torch.nn.Unflatten(1, (2, 6, 6)), first, torch.nn.Tanh(), second, torch.nn.Flatten())
    return torch.nn.Sequential(*parts, torch.nn.Linear(27, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "num_features", "num_scores"),
    [(perceptron(5, 2), 5, 1), (convolutions(3), 64, 3), (Attending(), 12, 3), (grouped(), 72, 3)],
)
@pytest.mark.parametrize("rank", [0, 2])
def test_norms_match_the_jacobians(made, num_features, num_scores, rank):
    """The norm by which a row is divided equals the norm of the row's Jacobian with respect to all of the network's
    weights, whichever way it is computed."""
    content = exported(made, num_features)
    model = tangent(content, num_scores, layers=tuple(Graph(content).weights), rank=rank)
    rows = rows_of(9, num_features).double()
    norms = torch.linalg.matrix_norm(model.jacobians(rows), 2)
    torch.testing.assert_close(1 / model.scales(rows).double(), SLACK * norms, rtol=1e-6, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("offset", [False, True])
def test_scores_are_linear_in_the_parameters(rank, offset):
    """Scores are exactly the network's own scores plus the Jacobian times the parameters, however large the parameters
    are."""
    model = tangent(
        exported(convolutions(3), 64), 3, rank=rank, offset=offset, layers=("1.weight", "9.weight", "10.weight")
    )
    rows = rows_of(5, 64).double()
    scales, parameters = model.scales(rows).double(), torch.randn(model.num_parameters, dtype=torch.float64)
    expected = scales[:, None] * torch.einsum("nkp,p->nk", model.jacobians(rows), parameters)
    own = model.scores(torch.zeros_like(parameters), rows, scales)
    assert bool(own.any()) is offset
    torch.testing.assert_close(model.scores(parameters, rows, scales), own + expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model.scores(1e3 * parameters, rows, scales), own + 1e3 * expected, rtol=1e-9, atol=1e-9)


def test_the_gradient_is_the_derivative_of_the_loss():
    """The gradient over several blocks of rows equals the derivative of the rows' summed cross-entropies."""
    model = tangent(exported(perceptron(4, 3), 4), 3)
    rows, labels = rows_of(600, 4).double(), torch.arange(600) % 3
    scales = model.scales(rows).double()
    jacobians = model.jacobians(rows)
    parameters = torch.randn(model.num_parameters, dtype=torch.float64, requires_grad=True)
    own = model.scores(torch.zeros(model.num_parameters, dtype=torch.float64), rows, scales)
    scores = own + scales[:, None] * torch.einsum("nkp,p->nk", jacobians, parameters)
    (expected,) = torch.autograd.grad(torch.nn.functional.cross_entropy(scores, labels, reduction="sum"), parameters)
    ours = model.gradient(
        parameters.detach(),
        rows,
        scales,
        lambda scores, at: scores.softmax(1) - torch.nn.functional.one_hot(labels[at], 3),
    )
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_two_outputs_give_one_score():
    """For a network with two outputs, the score is the second output minus the first."""
    content, rows = exported(perceptron(4, 2), 4), rows_of(3, 4).double()
    model = tangent(content, 1)
    graph = Graph(content).to(torch.device("cpu"), torch.float64)
    outputs = graph(rows)
    own = model.scores(torch.zeros(model.num_parameters), rows, model.scales(rows).double())
    torch.testing.assert_close(own, outputs[:, 1:] - outputs[:, :1])


def test_a_rank_reduces_the_parameters():
    """Setting a rank reduces the number of parameters of matrices with more columns than the rank, but not of other
    matrices or of vectors. The factors depend only on the seed."""
    content, rows = exported(perceptron(4, 3), 4), rows_of(3, 4).double()
    whole, some, same, other = (
        tangent(content, 3, rank=rank, seed=seed) for rank, seed in ((0, 0), (2, 5), (2, 5), (2, 6))
    )
    assert whole.num_parameters == 4 * 8 + 8 + 8 * 3 + 3
    assert some.num_parameters == 2 * 8 + 8 + 2 * 3 + 3
    torch.testing.assert_close(some.jacobians(rows), same.jacobians(rows), rtol=0, atol=0)
    assert not torch.allclose(some.jacobians(rows), other.jacobians(rows))
    factor = np.random.Generator(np.random.Philox(5)).standard_normal((2, 4)) / 2
    first = whole.jacobians(rows)[:, :, : 4 * 8].unflatten(2, (8, 4)) @ torch.from_numpy(factor).T
    torch.testing.assert_close(some.jacobians(rows)[:, :, : 2 * 8], first.flatten(2))


@pytest.mark.parametrize(("num_scores", "layers"), [(4, ALL), (1, ALL), (3, ("0.weight", "nowhere"))])
def test_unsuitable_outputs_and_layers_are_refused(num_scores, layers):
    """A network whose outputs do not match the number of scores is refused, and so are unknown layers."""
    with pytest.raises(ValueError, match="Expected"):
        tangent(exported(perceptron(4, 3), 4), num_scores, layers=layers)
