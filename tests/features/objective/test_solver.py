"""The solver: its gradient, the certificate of its tolerance, and its output."""

import mpmath
import numpy as np
import pytest
import torch

from app.errors import NotConverged
from lethe.encoding.targets import UNIT
from lethe.features.objective.mechanism import ObjectivePerturbation
from lethe.proof.losses import Objective
from tests.features.objective.quadrature import mechanism
from tests.worker.langevin.conftest import ReplayableNoise
from worker.features.objective import solver
from worker.features.objective.certificate import gradient_norm_bound
from worker.features.objective.solver import minimise
from worker.langevin.noise import SystemNoise

ROWS = 40
KINDS = [
    (Objective.LOGISTIC_REGRESSION, 2),
    (Objective.LOGISTIC_REGRESSION, 3),
    (Objective.MULTILABEL_LOGISTIC_REGRESSION, 3),
]


class OnlyPerturbed(ReplayableNoise):
    """Test noise whose second draw, that of the output, is zero."""

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        drawn = super().rounded_normal(size, spread)
        return drawn if len(self.drawn) == 1 else torch.zeros_like(drawn)


def made(objective: Objective, classes: int, **changed) -> ObjectivePerturbation:
    settings = {"num_slots": ROWS, "num_columns": 4, "l2": 1.5 / ROWS, "tolerance": 1e-6, "output_noise": 2.0**-7}
    return mechanism(objective=objective, num_classes=classes, **settings | changed)


def rows(objective: Objective, classes: int, weighted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((ROWS, 4))
    features /= np.linalg.norm(features, axis=1, keepdims=True) * 1.01
    most = 2**classes if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION else classes
    labels = rng.integers(most, size=ROWS).astype(np.int32)
    if weighted:
        labels = np.stack([labels, rng.integers(UNIT + 1, size=ROWS)], axis=1).astype(np.int32)
    return features.astype(np.float32), labels


def exact_gradient(theta, features, labels, objective: Objective, *, strength: float, perturbation, factors):
    """Return the perturbed objective's gradient, computed to fifty digits from the definition of the loss."""
    with mpmath.workdps(50):
        total = [[strength * mpmath.mpf(float(w)) + mpmath.mpf(float(b)) for w, b in zip(*pair, strict=True)]
                 for pair in zip(theta, perturbation, strict=True)]  # fmt: skip
        for x, label, factor in zip(features.tolist(), labels.tolist(), factors, strict=True):
            scores = [mpmath.fdot([(float(w), v) for w, v in zip(row, x, strict=True)]) for row in theta]
            if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
                slopes = [1 / (1 + mpmath.exp(-s)) - (label >> c & 1) for c, s in enumerate(scores)]
            elif len(scores) == 1:
                slopes = [1 / (1 + mpmath.exp(-scores[0])) - label]
            else:
                whole = mpmath.fsum(mpmath.exp(s) for s in scores)
                slopes = [mpmath.exp(s) / whole - (label == c) for c, s in enumerate(scores)]
            for row, slope in zip(total, slopes, strict=True):
                for j, v in enumerate(x):
                    row[j] += factor * slope * v
        return np.array([[float(value) for value in row] for row in total])


@pytest.mark.parametrize(("objective", "classes"), KINDS)
@pytest.mark.parametrize("newton", [0, 512])
@pytest.mark.parametrize("weighted", [False, True])
def test_minimiser_gradient_is_within_the_tolerance(objective, classes, newton, weighted, monkeypatch):
    """Newton and L-BFGS end at a point where the perturbed objective's gradient, computed to fifty digits, is within
    the tolerance. This also holds with class and row weights."""
    monkeypatch.setattr(solver, "NEWTON_PARAMETERS", newton)
    of_classes = (0.5, *(1.0,) * (classes - 1)) if weighted and objective is Objective.LOGISTIC_REGRESSION else None
    settings = made(objective, classes, class_weights=of_classes, weight_bound=1.0 if weighted else None)
    features, labels = rows(objective, classes, weighted)
    noise = OnlyPerturbed(1)
    drawn = OnlyPerturbed(1).rounded_normal(settings.num_parameters, settings.noise_scale / settings.noise_grid).numpy()
    found = minimise(
        mechanism=settings, features=features, labels=labels, noise=noise, on_progress=lambda iterations: None
    ).parameters
    factors = labels[:, 1] / UNIT if weighted else np.ones(ROWS)
    kinds = labels[:, 0] if weighted else labels
    if of_classes:
        factors = factors * np.array(of_classes)[kinds]
    gradient = exact_gradient(
        found,
        features,
        kinds,
        objective,
        strength=settings.num_slots * settings.l2,
        perturbation=(drawn * settings.noise_grid).reshape(found.shape),
        factors=factors.tolist(),
    )
    assert found.shape == settings.shape
    assert np.linalg.norm(gradient) <= settings.tolerance
    assert np.array_equal(found, np.round(found / settings.grid) * settings.grid)


@pytest.mark.parametrize(("objective", "classes"), KINDS)
def test_certificate_bounds_the_exact_gradient(objective, classes):
    """The certified gradient norm is an upper bound on the exact norm and exceeds it only by rounding, both near the
    minimiser and far from it."""
    features, labels = rows(objective, classes)
    shape = made(objective, classes).shape
    rng = np.random.default_rng(3)
    for size in (0.0, 0.1, 30.0):
        theta, perturbation = size * rng.standard_normal(shape), rng.standard_normal(shape)
        exact = exact_gradient(
            theta, features, labels, objective, strength=0.7, perturbation=perturbation, factors=[1.0] * ROWS
        )
        bound = gradient_norm_bound(
            theta,
            features=features,
            labels=labels,
            perturbation=perturbation,
            regularisation=(1, 0.7),
            objective=objective,
        )
        assert np.linalg.norm(exact) * (1 - 1e-15) <= bound <= np.linalg.norm(exact) + 1e-11


def test_solver_that_stops_early_is_refused():
    """If the solver reaches its iteration limit before its tolerance, no version is made. The error reveals no
    number."""
    features, labels = rows(Objective.LOGISTIC_REGRESSION, 2)
    with pytest.raises(NotConverged, match=r"^The solver did not reach its tolerance\.$"):
        minimise(
            mechanism=made(Objective.LOGISTIC_REGRESSION, 2, max_iterations=1),
            features=features,
            labels=labels,
            noise=SystemNoise(),
            on_progress=lambda iterations: None,
        )


def test_wrong_gradient_is_refused(monkeypatch):
    """If the solver's gradient omits a row, the certificate, which is computed by separate code, detects this and no
    version is made."""
    features, labels = rows(Objective.LOGISTIC_REGRESSION, 2)
    passed = solver._Rows.gradient_and_hessians

    def short(self, point):
        kept, self.features = self.features, np.concatenate([self.features[1:], np.zeros_like(self.features[:1])])
        try:
            return passed(self, point)
        finally:
            self.features = kept

    monkeypatch.setattr(solver._Rows, "gradient_and_hessians", short)
    with pytest.raises(NotConverged):
        minimise(
            mechanism=made(Objective.LOGISTIC_REGRESSION, 2),
            features=features,
            labels=labels,
            noise=SystemNoise(),
            on_progress=lambda iterations: None,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (2 * x, y), "norm <= 1"),
        (lambda x, y: (x * np.float32("nan"), y), "norm <= 1"),
        (lambda x, y: (x, y + 5), "label"),
        (lambda x, y: (x[1:], y[1:]), "slot"),
        (lambda x, y: (x.astype(np.float64), y), "float32"),
    ],
)
def test_rows_outside_the_proof_are_refused(change, message):
    """Rows that violate an assumption of the guarantee are refused before any noise is drawn."""
    features, labels = change(*rows(Objective.LOGISTIC_REGRESSION, 2))
    noise = ReplayableNoise(1)
    with pytest.raises(ValueError, match=message):
        minimise(
            mechanism=made(Objective.LOGISTIC_REGRESSION, 2),
            features=features,
            labels=labels,
            noise=noise,
            on_progress=lambda iterations: None,
        )
    assert noise.drawn == []


def test_null_rows_change_nothing_and_are_not_counted():
    """The label of a null row does not change a single bit of a version, and null rows are not counted as records."""
    settings = made(Objective.LOGISTIC_REGRESSION, 2)
    features, labels = rows(Objective.LOGISTIC_REGRESSION, 2)
    features[7] = 0
    versions = []
    for label in (0, 1):
        labels[7] = label
        versions.append(
            minimise(
                mechanism=settings,
                features=features,
                labels=labels,
                noise=ReplayableNoise(4),
                on_progress=lambda iterations: None,
            )
        )
    assert np.array_equal(versions[0].parameters, versions[1].parameters)
    assert [version.records for version in versions] == [ROWS - 1] * 2


def test_perturbation_is_overwritten():
    """After a run, the buffer that held the perturbation's noise contains only zeros."""
    features, labels = rows(Objective.LOGISTIC_REGRESSION, 2)
    noise = ReplayableNoise(2)
    minimise(
        mechanism=made(Objective.LOGISTIC_REGRESSION, 2),
        features=features,
        labels=labels,
        noise=noise,
        on_progress=lambda iterations: None,
    )
    assert not noise.drawn[0].any()
    assert len(noise.drawn) == 2
