"""Public networks in dry runs: row features, computed in a separate process by the same code as on a gateway, and
tangent models, with each row's Jacobian scaled as a worker would scale it."""

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.client.waiting import Progress
from lethe.contract import fields, problems
from lethe.encoding.rows import Features, Schema, check_finite, check_fit
from lethe.features.networks.encoders import process
from lethe.features.networks.encoders.limits import Limits
from lethe.features.networks.tangents.supported import unsupported
from lethe.features.tables.fitting import Floats, Places
from lethe.proof import errors, losses
from lethe.proof.network import Linearisation

_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSeen:
    """Network used in a dry run, with the fields of `GET /v1/networks/{id}`. `shut_in` is always True: a network runs
    only if its process can open neither connections nor files."""

    sha256: str
    input_shape: tuple[int, ...]
    output_size: int
    num_parameters: int
    shut_in: bool


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """ONNX file of a public network. `sha256` is the digest it must have; `limits` apply to the network's process."""

    path: str | Path
    sha256: str | None = None
    limits: Limits = _LIMITS


class OpenedNetworkFile:
    """Network loaded from an examined file. Its process starts only when features are computed."""

    def __init__(self, examined: process.ExaminedNetwork, limits: Limits) -> None:
        self.content, self._limits = examined.content, limits
        facts = examined.facts
        self.opset: int = facts["opset"]
        self.operators: list[str] = facts["operators"]
        self.parameters: dict[str, list[int]] = {
            parameter["name"]: parameter["shape"] for parameter in facts["parameters"]
        }
        self.seen = NetworkSeen(
            sha256=examined.sha256,
            input_shape=tuple(facts["input_shape"]),
            output_size=facts["output_size"],
            num_parameters=facts["num_parameters"],
            shut_in=facts["shut_in"],
        )

    def features(self, raw: Floats, progress: Progress) -> Floats:
        """Return the features of encoded records. Raises `RowInvalid` and `NetworkFailed`.  # (n, d) -> (n, k)"""
        size = int(np.prod(self.seen.input_shape))
        with process.started(
            self.content, input_size=size, output_size=self.seen.output_size, limits=self._limits
        ) as encoder:
            features = encoder.encode(raw, progress=lambda num_rows: progress("encoding", num_rows, len(raw)))
        check_finite(features, range(1, len(raw) + 1))
        return features.astype(np.float64)


def opened(network: NetworkFile | str | Path, schema: Schema) -> OpenedNetworkFile:
    """Examine a network's file.

    Raises `InputInvalid` for a missing file, `NetworkInvalid`, `UploadTooLarge`, `NetworkFailed` (always on systems
    other than Linux), `SchemaInvalid` if the encoded records do not match the network's input, and
    `ModuleNotFoundError` if the extra `onnx` is not installed.
    """
    if sys.platform != "linux":
        raise problems.NetworkFailed(
            "A network needs Linux: its process is held to its memory and shut in by no other system."
        )
    for module in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    file = network if isinstance(network, NetworkFile) else NetworkFile(network)
    limits = file.limits
    content = _read(Path(file.path), limits.file_bytes + 1)
    # A longer file was not read to its end.
    if file.sha256 is not None and len(content) <= limits.file_bytes:
        _check_sha256(content, file.sha256)
    examined = OpenedNetworkFile(process.examine(content, limits), limits)
    check_fit(schema, int(np.prod(examined.seen.input_shape)))
    return examined


def _check_sha256(content: bytes, sha256: str) -> None:
    """Raise `NetworkInvalid` if the file's SHA-256 differs from `sha256`, before the network runs."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256.lower():
        raise problems.NetworkInvalid(
            f"The file has the SHA-256 {digest}: it is not the requested network.",
            [problems.FieldError("network_sha256", "expected that of the file")],
        )


def _read(path: Path, max_bytes: int) -> bytes:
    if not path.is_file():
        raise problems.InputInvalid(
            "There is no such network file. Networks run on this machine: give the path of an ONNX file; "
            "`lethe network file ID encoder.onnx` fetches the file of a registered network.",
            [problems.FieldError("network", "expected the path of an ONNX file")],
        )
    with path.open("rb") as file:
        return file.read(max_bytes)


_MAX_NUMBERS = 2**27
"""Maximum number of entries in all Jacobians: half a gigabyte in single precision, and three times that with copies."""
_BATCH_ROWS = 64
_NOT_FINITE = "expected scores and derivatives that are finite numbers, once the network has computed them"
_TANGENT_OBJECTIVES = (losses.Objective.LOGISTIC_REGRESSION, losses.Objective.MULTILABEL_LOGISTIC_REGRESSION)


class TangentFittingRows:
    """Rows of a tangent model, with scores o g(x) + J~(x) u (docs/mathematics/tangents.md)."""

    def __init__(self, jacobians: npt.NDArray[np.float32], offsets: npt.NDArray[np.float32]) -> None:
        # (n, k, p) and (n, k)
        self._jacobians, self._offsets = jacobians, offsets
        self.shape = (1, jacobians.shape[2])
        self.num_products = jacobians.shape[1] * jacobians.shape[2]

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def numbers(self) -> Floats:
        """Jacobians of every row's scores  # (n k, p)"""
        return self._jacobians.reshape(-1, self._jacobians.shape[2]).astype(np.float64)

    def at(self, places: Places) -> "TangentFittingRows":
        return TangentFittingRows(self._jacobians[places], self._offsets[places])

    def scores(self, weights: Floats) -> Floats:
        """Return the rows' scores  # (..., 1, p) -> (..., n, k)"""
        moved = np.einsum("nkp,...op->...nk", self._jacobians, weights.astype(np.float32), optimize=True)
        return np.asarray(moved + self._offsets, np.float64)

    def pulled(self, pull: Floats) -> Floats:
        """Return the sum over rows of J~^T times the gradient w.r.t. the scores  # (..., n, k) -> (..., 1, p)"""
        total = np.einsum("...nk,nkp->...p", pull.astype(np.float32), self._jacobians, optimize=True)
        return np.asarray(total[..., np.newaxis, :], np.float64)


def chosen_layers(
    network: OpenedNetworkFile, tangent: Mapping[str, Any], objective: losses.Objective, second_moment: float | None
) -> Linearisation:
    """Return the weights that a tangent model trains. Raises `PreconditionFailed` in the same cases as a gateway."""
    if objective not in _TANGENT_OBJECTIVES:
        raise _refused("Tangent models learn classes or labels, by their logistic losses.", "expected none")
    if second_moment is not None:
        raise problems.PreconditionFailed(
            "A tangent model states no second moment.", [problems.FieldError("second_moment", "expected none")]
        )
    if obstacle := unsupported(network.operators, network.opset):
        raise _refused(f"The network cannot be differentiated: {obstacle}.", "expected another network")
    if unknown := sorted(set(tangent["layers"]) - network.parameters.keys()):
        raise _refused(
            "The network has no such weights.", fields.expected(sorted(network.parameters), found=unknown[0])
        )
    try:
        return Linearisation(**{**tangent, "layers": tuple(tangent["layers"])})
    except errors.PrivacyError as error:
        raise _refused(f"{error}.", "expected layers of the network, once each") from error


def rows_of(
    network: OpenedNetworkFile, layers: Linearisation, rows: Features, *, num_scores: int, progress: Progress
) -> TangentFittingRows:
    """Return a tangent model's rows, computed from encoded rows by torch in this process (extra `tangents`) without
    time or memory limits.

    Raises `PreconditionFailed` if the network's outputs are not the scores or the Jacobians are too large, and
    `RowInvalid` for rows with non-finite scores or derivatives.
    """
    import torch

    from lethe.features.networks.tangents.graph import Graph
    from lethe.features.networks.tangents.model import Tangent, network_inputs

    try:
        tangent = Tangent(Graph(network.content), layers, num_scores=num_scores)
    except ValueError as error:
        raise _refused(f"The network does not fit: {error}.", "expected another network") from error
    num_numbers = len(rows) * num_scores * tangent.num_parameters
    if num_numbers > _MAX_NUMBERS:
        raise _refused(
            f"The derivatives of {len(rows)} rows in {tangent.num_parameters} parameters are {num_numbers} numbers, and"
            f" a dry run keeps {_MAX_NUMBERS}: name fewer layers or a rank, or try fewer rows. Noise and passes do not"
            " depend on the network: `lethe model plan --dataset` shows them.",
            "expected fewer layers",
        )
    jacobians, offsets = [], []
    zeros = torch.zeros(1, tangent.num_parameters, dtype=torch.float64)
    for start in range(0, len(rows), _BATCH_ROWS):
        inputs = torch.from_numpy(network_inputs(rows[start : start + _BATCH_ROWS]))
        lines = range(start + 1, start + 1 + len(inputs))
        derivatives = tangent.jacobians(inputs).detach()
        check_finite(derivatives.square().sum(2).numpy(), lines, _NOT_FINITE)
        try:
            scales = tangent.scales(inputs).detach()
        # Products of derivatives may not be finite.
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            raise _refused("The network's derivatives have no norm.", "expected smaller numbers") from None
        scores = tangent.scores(zeros, inputs, scales).detach().numpy()
        check_finite(scores * scales[:, None].numpy(), lines, _NOT_FINITE)
        offsets.append(scores)
        jacobians.append((derivatives * scales[:, None, None]).numpy())
        progress("encoding", min(start + _BATCH_ROWS, len(rows)), len(rows))
    return TangentFittingRows(np.concatenate(jacobians), np.concatenate(offsets))


def _refused(detail: str, expectation: str) -> problems.PreconditionFailed:
    return problems.PreconditionFailed(detail, [problems.FieldError("tangent", expectation)])
