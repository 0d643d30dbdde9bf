"""The true hockey stick of exact objective perturbation, by quadrature over the minimiser in one or two dimensions."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.features.objective.mechanism import ObjectivePerturbation
from lethe.proof.losses import Objective

Floats = NDArray[np.float64]
Record = tuple[Floats, int]


def mechanism(**changed) -> ObjectivePerturbation:
    """Return a mechanism with two classes, one column, Lambda = 1 and sigma = 2, whose solver error is negligible."""
    settings = {
        "objective": Objective.LOGISTIC_REGRESSION,
        "num_slots": 1,
        "num_classes": 2,
        "num_columns": 1,
        "l2": 1.0,
        "noise_scale": 2.0,
        "tolerance": 1e-7,
        "output_noise": 1.0,
    }
    return ObjectivePerturbation(**settings | changed)


@dataclass(frozen=True, slots=True)
class Law:
    """Density of the minimiser on a grid of cells of equal `volume`; its mass is 1 up to the quadrature."""

    density: Floats  # (k,)
    volume: float

    def mass(self) -> float:
        return float(self.density.sum() * self.volume)


def laws(
    first: list[Record], second: list[Record], *, classes: int, strength: float, noise_scale: float, cells: int = 201
) -> tuple[Law, Law]:
    """Return the laws of the minimiser for two data sets, on a grid wide enough for both."""
    sizes = [float(np.linalg.norm(x)) for x, _ in first + second]
    reach = (9 * noise_scale + math.sqrt(2) * sum(sizes)) / strength
    settings = {"classes": classes, "strength": strength, "noise_scale": noise_scale}
    dimensions = 2 if classes == 3 else len((first + second)[0][0])
    axis = np.linspace(-reach, reach, cells if dimensions == 2 else 20 * cells)
    return _law(first, axis, dimensions, **settings), _law(second, axis, dimensions, **settings)


def _law(
    records: list[Record], axis: Floats, dimensions: int, *, classes: int, strength: float, noise_scale: float
) -> Law:
    """Return the density phi(F(theta)) det F'(theta), where F is the gradient without its random term.

    For two classes, the minimiser has as many coordinates as a row. For three classes and one column, it has the two
    coordinates orthogonal to (1, 1, 1): the third is a normal number over Lambda, whatever the data."""
    basis = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    theta = np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    slope, hessian = strength * theta, np.zeros((len(theta), dimensions, dimensions)) + strength * np.eye(dimensions)
    for x, label in records:
        if classes == 2:
            p = 1 / (1 + np.exp(-theta @ x))
            slope = slope + (p - label)[:, None] * x
            hessian = hessian + (p * (1 - p))[:, None, None] * np.outer(x, x)
        else:
            scores = theta @ basis * x[0]
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            slope = slope + x[0] * ((p - np.eye(3)[label]) @ basis.T)
            curved = p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None, :]
            hessian = hessian + x[0] ** 2 * np.einsum("ic,ncd,jd->nij", basis, curved, basis)
    squares = (slope**2).sum(axis=1) / noise_scale**2
    normal = np.exp(-squares / 2) / (noise_scale * math.sqrt(2 * math.pi)) ** dimensions
    return Law(normal * np.linalg.det(hessian), float(axis[1] - axis[0]) ** dimensions)


def hockey_stick(one: Law, other: Law, epsilon: float) -> float:
    """Return E(1 - e^epsilon dQ/dP)_+ under P, where P is `one` and Q is `other`, both on the same grid."""
    return float(np.maximum(one.density - math.exp(epsilon) * other.density, 0).sum() * one.volume)
