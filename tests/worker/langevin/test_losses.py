"""Losses other than the logistic loss: the gradients of each pass, and the minimisers that are reached."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import optimize
from sklearn.linear_model import PoissonRegressor

from lethe.encoding.targets import UNIT, TargetColumn, y_of_scores
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from tests.worker import passes
from tests.worker.langevin.conftest import SilentNoise
from worker.evidence import differs
from worker.langevin import chain, engines
from worker.langevin.gradient import HostRows
from worker.langevin.losses import Loss
from worker.langevin.window import BLOCK_ROWS

RandomRows = Callable[..., tuple[Any, Any]]
HUBER, SQUARES, HINGE, LABELS, COUNTS = (
    Loss(Objective.HUBER_REGRESSION, 0.4),
    Loss(Objective.LEAST_SQUARES),
    Loss(Objective.SMOOTHED_HINGE, 0.5),
    Loss(Objective.MULTILABEL_LOGISTIC_REGRESSION),
    Loss(Objective.POISSON_REGRESSION, 1.5),
)
every_loss = pytest.mark.parametrize("loss", [HUBER, SQUARES, HINGE, LABELS, COUNTS])
ROUNDING = 1e-5


def classes_of(loss: Loss) -> int:
    """Return a loss's number of classes. For labels it is three, an odd number, so that the kernel has to pad."""
    return {HINGE: 2, LABELS: 3}.get(loss, 1)


def gradient_bound_of(loss: Loss) -> float:
    return min(1.0, loss.width or 1.0)


def parameters_of(loss: Loss, num_features: int, scale: float = 1.0, seed: int = 1) -> Any:
    rows = loss.weight_rows(classes_of(loss))
    return torch.from_numpy(scale * np.random.default_rng(seed).standard_normal((rows, num_features)))


def labelled(loss: Loss, num_rows: int, num_features: int, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of norm 1 with labels that depend on them slightly."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((num_rows, num_features))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)
    y = np.clip(features[:, 0] + 0.3 * generator.standard_normal(num_rows), -1, 1)
    labels = (y > 0) if loss is HINGE else np.rint(y * UNIT)
    if loss is LABELS:
        labels = (y > 0) + 2 * (y > 0.3) + 4 * generator.integers(0, 2, num_rows)
    return features.astype(np.float32), labels.astype(np.int32)


def losses(loss: Loss, scores: Any, labels: Any) -> Any:
    """Return the textbook losses in double precision with torch. `scores` has shape (n, 1), or (n, C) for labels."""
    if loss is LABELS:
        has = torch.from_numpy(labels[:, None] >> np.arange(3) & 1).double()
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, has, reduction="none").sum(dim=1)
    scores = scores[:, 0]
    if loss.objective is Objective.SMOOTHED_HINGE:
        z = (2 * torch.from_numpy(labels).double() - 1) * scores
        bend = (1 - z) ** 2 / (2 * loss.width)
        return torch.where(z >= 1, 0.0, torch.where(z <= 1 - loss.width, 1 - z - loss.width / 2, bend))
    if loss is COUNTS:
        rates = torch.where(scores <= loss.width, torch.exp(scores - loss.width), 1 + scores - loss.width)
        return rates - (torch.from_numpy(labels).double() / UNIT + 1) / 2 * scores
    residuals = scores - torch.from_numpy(labels).double() / UNIT
    if loss.width is None:
        return residuals**2 / 2
    return torch.nn.functional.huber_loss(residuals, torch.zeros_like(residuals), delta=loss.width, reduction="none")


def gradient_of(loss: Loss, parameters: torch.Tensor, features: Any, labels: Any) -> torch.Tensor:
    with HostRows(features, labels, num_classes=classes_of(loss), loss=loss) as rows:
        return rows.gradient(parameters)


@every_loss
def test_gradient_agrees_with_automatic_differentiation(loss: Loss) -> None:
    """Over several blocks, the gradients of the kernel, the device and numpy's second gradient equal the automatic
    derivative of the textbook loss."""
    features, labels = labelled(loss, 2 * BLOCK_ROWS + 17, 12)
    parameters = parameters_of(loss, 12, 2.0).requires_grad_()
    scores = torch.from_numpy(features).double() @ parameters.T
    (expected,) = torch.autograd.grad(losses(loss, scores, labels).sum(), parameters)
    at = parameters.detach()
    ours = gradient_of(loss, at, features, labels)
    torch.testing.assert_close(ours, expected, rtol=ROUNDING, atol=ROUNDING * len(features))
    for opened in passes.OTHERS.values():
        with opened(features, labels, num_classes=classes_of(loss), loss=loss) as rows:
            torch.testing.assert_close(rows.gradient(at), ours, rtol=ROUNDING, atol=ROUNDING * len(features))
    seen = {"features": features, "labels": labels, "objective": loss.objective, "loss_width": loss.width}
    assert not differs(ours.numpy(), at.numpy(), bound=1.0, **seen)
    assert differs(ours.numpy() + 0.1 * features[0], at.numpy(), bound=1.0, **seen)


@pytest.mark.parametrize("loss", [HUBER, SQUARES, HINGE])
def test_a_close_fit_to_identical_rows_is_not_a_fault(loss: Loss) -> None:
    """If all rows are identical and fitted exactly, the gradient consists only of rounding errors in the scores. The
    errors add up instead of cancelling, and the comparison still accepts them."""
    features = np.tile(labelled(loss, 1, 20)[0], (300_000, 1))
    at, score = np.random.default_rng(6).normal(size=(1, 20)) * 9, 0.75 if loss is HINGE else 0.3
    wide = features[0].astype(float)
    at += (score - at @ wide) * wide / (wide @ wide)
    labels = np.full(300_000, 1 if loss is HINGE else round(0.3 * UNIT), np.int32)
    ours = gradient_of(loss, torch.from_numpy(at), features, labels)
    seen = {"features": features, "labels": labels, "objective": loss.objective, "loss_width": loss.width}
    assert not differs(ours.numpy(), at, bound=gradient_bound_of(loss), **seen)


@every_loss
def test_null_rows_contribute_exactly_nothing(loss: Loss) -> None:
    """The gradient over null rows is zero, whatever their labels are."""
    features, labels = labelled(loss, 50, 8)
    parameters = parameters_of(loss, 8, 3.0)
    assert not gradient_of(loss, parameters, np.zeros_like(features), labels).any()
    features[17] = 0
    before = gradient_of(loss, parameters, features, labels)
    labels[17] = 0
    assert torch.equal(gradient_of(loss, parameters, features, labels), before)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    radius=st.floats(0.01, 100),
    loss=st.sampled_from([HUBER, SQUARES, HINGE, LABELS, COUNTS]),
)
def test_gradient_of_one_record_is_bounded(seed: int, radius: float, loss: Loss) -> None:
    """In a ball of radius R, the gradient of a row of norm 1 has a norm of at most h, R + 1, 1 or sqrt(3), depending on
    the loss."""
    features, labels = labelled(loss, 1, 3, seed)
    parameters = parameters_of(loss, 3, seed=seed)
    parameters *= radius / torch.linalg.vector_norm(parameters)
    pull = float(torch.linalg.vector_norm(gradient_of(loss, parameters, features, labels)))
    bound = {HUBER: 0.4, SQUARES: radius + 1, HINGE: 1.0, LABELS: 3**0.5, COUNTS: 1.0}[loss]
    assert pull <= bound * (1 + 1e-6)


@pytest.mark.parametrize(("loss", "bound"), [(HUBER, 0.4), (SQUARES, 10.0), (HINGE, 1.0), (COUNTS, 1.0)])
def test_gradient_bounds_are_attained(loss: Loss, bound: float) -> None:
    """For weights of norm 9, a row in the same direction whose target is as far as possible from its score attains the
    gradient bound."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([0 if loss is HINGE else -UNIT], np.int32)
    pull = gradient_of(loss, torch.tensor([[9.0, 0.0]], dtype=torch.float64), row, label)
    assert pull.numpy() == pytest.approx(np.array([[bound, 0.0]]), rel=ROUNDING)


def test_three_wrong_labels_attain_the_gradient_bound() -> None:
    """A row that has none of three labels but is predicted to have all of them has a gradient of norm sqrt(3)."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([0], np.int32)
    pull = gradient_of(LABELS, torch.tensor([[90.0, 0.0]] * 3, dtype=torch.float64), row, label)
    assert float(torch.linalg.vector_norm(pull)) == pytest.approx(3**0.5, rel=ROUNDING)


def test_two_labels_have_a_score_each() -> None:
    """Unlike two classes, two labels have two scores, and each has the gradient of a two-class logistic loss."""
    features, labels = labelled(LABELS, 500, 6)
    parameters = parameters_of(LABELS, 6)[:2].contiguous()
    with HostRows(features, labels & 3, num_classes=2, loss=LABELS) as rows:
        together = rows.gradient(parameters)
    for label in range(2):
        with HostRows(features, labels >> label & 1, num_classes=2) as rows:
            torch.testing.assert_close(together[[label]], rows.gradient(parameters[[label]]), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("label", [-1, 8])
def test_an_unknown_label_is_refused(label: int) -> None:
    """An integer that does not encode one of the eight sets of three labels is refused."""
    row = np.array([[1.0, 0.0]], np.float32)
    with pytest.raises(ValueError, match="2\\^num_classes"):
        gradient_of(LABELS, torch.zeros(3, 2, dtype=torch.float64), row, np.array([label], np.int32))


@every_loss
def test_nan_weights_make_the_gradient_nan(loss: Loss) -> None:
    """If the weights are NaN, the gradient is NaN and is not clipped at the bound."""
    features, labels = labelled(loss, 40, 4)
    parameters = parameters_of(loss, 4) * float("nan")
    assert gradient_of(loss, parameters, features, labels).isnan().all()


@pytest.mark.parametrize("label", [UNIT + 1, -UNIT - 1, 2**31 - 1])
def test_a_target_beyond_one_is_refused(label: int) -> None:
    """A stored target that is not between -1 and 1 is refused when the rows are opened as well as when they are
    read."""
    row = np.array([[1.0, 0.0]], np.float32)
    with pytest.raises(ValueError, match="between -1 and 1"):
        gradient_of(HUBER, torch.zeros(1, 2, dtype=torch.float64), row, np.array([label], np.int32))


# --- minimisers ------------------------------------------------------------------------------------------------------


def learned(loss: Loss, features: Any, labels: Any, *, l2: float, device: str = "cpu") -> Any:
    """Return the parameters after noiseless steps, close to the minimiser, as an array (1, d) or (C, d)."""
    settings = {"num_slots": len(features), "l2": l2, "noise_scale": 0.1, "radius": 5.0, "learn_steps": 2000}
    mechanism = Mechanism(
        objective=loss.objective,
        num_classes=classes_of(loss),
        loss_width=loss.width,
        step_size=0.5,
        num_parameters=features.shape[1],
        **settings,
    )
    ran = chain.run(
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=np.zeros((loss.weight_rows(classes_of(loss)), features.shape[1])),
        steps=2000,
        noise=SilentNoise(),
        on_progress=lambda steps_done: None,
        backend=engines.Backend(device=device, threads=1),
    )
    return ran.parameters


def test_least_squares_match_ridge_regression() -> None:
    """With least squares, the noiseless steps converge to (X'X/n + l2 I)^-1 X'y/n, even if some rows are null."""
    features, labels = labelled(SQUARES, 300, 5)
    features[::7] = 0
    x, y = features.astype(float), labels / UNIT
    expected = np.linalg.solve(x.T @ x / 300 + 0.05 * np.eye(5), x.T @ y / 300)
    np.testing.assert_allclose(learned(SQUARES, features, labels, l2=0.05)[0], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [HUBER, HINGE, LABELS, COUNTS])
def test_other_objectives_reach_their_minimiser(loss: Loss) -> None:
    """The noiseless steps converge to the minimiser that scipy finds for the same objective."""
    features, labels = labelled(loss, 300, 5)
    rows = torch.from_numpy(features).double()

    def value(w: Any) -> float:
        scores = rows @ torch.from_numpy(w).reshape(-1, 5).T
        return float(losses(loss, scores, labels).mean() + 0.05 / 2 * (w @ w))

    found = learned(loss, features, labels, l2=0.05)
    expected = optimize.minimize(value, np.zeros(found.size), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5)


def test_counts_match_scikit_learn() -> None:
    """If a score of 0 represents a rate of 1 and no rate is near the bound, the minimiser equals that of scikit-learn's
    PoissonRegressor, whose loss is Lethe's multiplied by the bound."""
    bound, l2 = 30.0, 2e-3
    generator = np.random.default_rng(3)
    features = np.ones((3000, 4))
    features[:, 1:] = generator.standard_normal((3000, 3))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)
    counts = generator.poisson(np.exp(features @ [0.9, 1.2, -0.7, 0.3]))
    labels = TargetColumn(low=0, high=bound, counts=True).labels(counts)
    assert counts.max() < bound
    found = learned(Loss(Objective.POISSON_REGRESSION, math.log(bound)), features.astype(np.float32), labels, l2=l2)
    rival = PoissonRegressor(alpha=l2 * bound, fit_intercept=False, tol=1e-10, max_iter=1000).fit(features, counts)
    np.testing.assert_allclose(found[0], rival.coef_, atol=1e-4)
    rates = bound * (y_of_scores(features @ found[0], objective="poisson_regression", loss_width=math.log(bound)) + 1)
    np.testing.assert_allclose(rates / 2, rival.predict(features), rtol=1e-3)


def test_rates_of_counts_stop_at_their_bound() -> None:
    """If a count is at its bound and the score is beyond the bend, where the rate reaches the bound, the gradient is 0
    and the prediction is the bound."""
    row, label = np.array([[1.0, 0.0]], np.float32), np.array([UNIT], np.int32)
    for score in (1.5, 40.0, 1e6):
        assert not gradient_of(COUNTS, torch.tensor([[score, 0.0]], dtype=torch.float64), row, label).any()
    assert y_of_scores(np.array([1.5, 1e6]), objective="poisson_regression", loss_width=1.5).tolist() == [1.0, 1.0]
