"""Tangent models in a dry run: each row's Jacobian in the weights that move, scaled as a worker scales it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.contract.problems import FieldError, PreconditionFailed
from lethe.contract.spelling import expected
from lethe.encoders.rows import check_finite
from lethe.encoding.rows import Features
from lethe.proof.errors import PrivacyError
from lethe.proof.losses import Objective
from lethe.proof.network import Linearisation
from lethe.tables.fitting import Floats, Places
from lethe.tables.networks import Opened
from lethe.tangents.supported import unsupported
from lethe.waiting import Progress

_MOST_NUMBERS = 2**27
"""Numbers of all Jacobians together: half a gigabyte in single precision, and up to thrice that with their copies."""
_AT_ONCE = 64
_NOT_FINITE = "expected scores and derivatives that are finite numbers, once the network has computed them"
_LEARNED = (Objective.LOGISTIC_REGRESSION, Objective.MULTILABEL_LOGISTIC_REGRESSION)


class TangentRows:
    """Rows of a tangent model: scores are o g(x) + J~(x) u (docs/mathematics/tangents.md)."""

    def __init__(self, jacobians: npt.NDArray[np.float32], offsets: npt.NDArray[np.float32]) -> None:
        self._jacobians, self._offsets = jacobians, offsets  # (n, k, p) and (n, k)
        self.shape = (1, jacobians.shape[2])
        self.num_products = jacobians.shape[1] * jacobians.shape[2]

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def numbers(self) -> Floats:
        """The rows of all scores  # (n k, p)"""
        return self._jacobians.reshape(-1, self._jacobians.shape[2]).astype(np.float64)

    def at(self, places: Places) -> "TangentRows":
        return TangentRows(self._jacobians[places], self._offsets[places])

    def scores(self, weights: Floats) -> Floats:
        """# (..., 1, p) -> (..., n, k)"""
        moved = np.einsum("nkp,...op->...nk", self._jacobians, weights.astype(np.float32), optimize=True)
        return np.asarray(moved + self._offsets, np.float64)

    def pulled(self, pull: Floats) -> Floats:
        """The sum over the rows of J~^T times the slope of each  # (..., n, k) -> (..., 1, p)"""
        found = np.einsum("...nk,nkp->...p", pull.astype(np.float32), self._jacobians, optimize=True)
        return np.asarray(found[..., np.newaxis, :], np.float64)


def chosen_layers(
    network: Opened, asked: Mapping[str, Any], objective: Objective, second_moment: float | None
) -> Linearisation:
    """The weights that move. Raises `PreconditionFailed` for what a gateway would refuse too."""
    if objective not in _LEARNED:
        raise _refused("Tangent models learn classes or labels, by their logistic losses.", "expected none")
    if second_moment is not None:
        raise PreconditionFailed(
            "A tangent model states no second moment.", [FieldError("second_moment", "expected none")]
        )
    if said := unsupported(network.operators, network.opset):
        raise _refused(f"The network cannot be differentiated: {said}.", "expected another network")
    if unknown := sorted(set(asked["layers"]) - network.parameters.keys()):
        raise _refused("The network has no such weights.", expected(sorted(network.parameters), found=unknown[0]))
    try:
        return Linearisation(**{**asked, "layers": tuple(asked["layers"])})
    except PrivacyError as error:
        raise _refused(f"{error}.", "expected layers of the network, once each") from error


def rows_of(
    network: Opened, chosen: Linearisation, rows: Features, *, num_scores: int, progress: Progress
) -> TangentRows:
    """The rows of a tangent model of encoded rows, computed by torch in this process (extra `tangents`), without limits
    of time or memory.

    Raises `PreconditionFailed` where the outputs of the network are not the scores, and where there are too many
    numbers; `RowInvalid` for rows whose scores or derivatives are not finite.
    """
    import torch

    from lethe.tangents.graph import Graph
    from lethe.tangents.model import Tangent
    from lethe.tangents.rows import network_inputs

    try:
        tangent = Tangent(Graph(network.content), chosen, num_scores=num_scores)
    except ValueError as error:
        raise _refused(f"The network does not fit: {error}.", "expected another network") from error
    num_numbers = len(rows) * num_scores * tangent.num_parameters
    if num_numbers > _MOST_NUMBERS:
        raise _refused(
            f"The derivatives of {len(rows)} rows in {tangent.num_parameters} parameters are {num_numbers} numbers, and"
            f" a dry run keeps {_MOST_NUMBERS}: name fewer layers or a rank, or try fewer rows. Noise and passes do not"
            " depend on the network: `lethe model plan --dataset` says them.",
            "expected fewer layers",
        )
    jacobians, offsets = [], []
    nothing = torch.zeros(1, tangent.num_parameters, dtype=torch.float64)
    for start in range(0, len(rows), _AT_ONCE):
        inputs = torch.from_numpy(network_inputs(rows[start : start + _AT_ONCE]))
        lines = range(start + 1, start + 1 + len(inputs))
        derivatives = tangent.jacobians(inputs).detach()
        check_finite(derivatives.square().sum(2).numpy(), lines, _NOT_FINITE)
        try:
            scales = tangent.scales(inputs).detach()
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # their products may not be finite
            raise _refused("The network's derivatives have no norm.", "expected smaller numbers") from None
        scores = tangent.scores(nothing, inputs, scales).detach().numpy()
        check_finite(scores * scales[:, None].numpy(), lines, _NOT_FINITE)
        offsets.append(scores)
        jacobians.append((derivatives * scales[:, None, None]).numpy())
        progress("encoding", min(start + _AT_ONCE, len(rows)), len(rows))
    return TangentRows(np.concatenate(jacobians), np.concatenate(offsets))


def _refused(detail: str, said: str) -> PreconditionFailed:
    return PreconditionFailed(detail, [FieldError("tangent", said)])
