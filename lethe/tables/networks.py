"""The features that a public network makes of a table, on the caller's machine: by the file itself, examined and run in
a process apart by the code by which a gateway does it."""

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.contract.problems import FieldError, InputInvalid, NetworkFailed, NetworkInvalid
from lethe.encoders import examining, process
from lethe.encoders.examining import Examined
from lethe.encoders.limits import Limits
from lethe.encoders.rows import check_finite, check_fit
from lethe.encoding.rows import Schema
from lethe.tables.fitting import Floats
from lethe.waiting import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSeen:
    """The network whose features the rows are, or that a tangent model moves; as `GET /v1/networks/{id}` has it, once
    the file is registered. `shut_in`: its process could open neither connections nor files."""

    sha256: str
    input_shape: tuple[int, ...]
    output_size: int
    num_parameters: int
    batch_size: int
    shut_in: bool


class Opened:
    """A network's file, examined; it runs when there are rows."""

    def __init__(self, examined: Examined, limits: Limits) -> None:
        self.content, self._limits = examined.content, limits
        facts = examined.facts
        self.opset: int = facts["opset"]
        self.operators: list[str] = facts["operators"]
        self.parameters: dict[str, list[int]] = {one["name"]: one["shape"] for one in facts["parameters"]}
        self.seen = NetworkSeen(
            sha256=examined.sha256,
            input_shape=tuple(facts["input_shape"]),
            output_size=facts["output_size"],
            num_parameters=facts["num_parameters"],
            batch_size=facts["batch_size"],
            shut_in=facts["shut_in"],
        )

    def features(self, raw: Floats, progress: Progress) -> Floats:
        """The features (n, k) of numbers (n, d) that a schema makes. Raises `RowInvalid`, `NetworkFailed`."""
        size = int(np.prod(self.seen.input_shape))
        with process.started(
            self.content,
            input_size=size,
            output_size=self.seen.output_size,
            batch_size=self.seen.batch_size,
            limits=self._limits,
        ) as encoder:
            found = encoder.encode(raw, told=lambda num_rows: progress("encoding", num_rows, len(raw)))
        check_finite(found, range(1, len(raw) + 1))
        return found.astype(np.float64)


def opened(file: str | Path, schema: Schema, *, sha256: str | None, limits: Limits) -> Opened:
    """Examine the file of a network. `sha256`: that it must have, if it must.

    Raises `InputInvalid` where there is no such file, `NetworkInvalid`, `NetworkFailed` (elsewhere than on Linux too),
    `UploadTooLarge`, `SchemaInvalid` where the schema makes other numbers than it takes; `ModuleNotFoundError` without
    the extra `onnx`.
    """
    if sys.platform != "linux":
        raise NetworkFailed("A network needs Linux: its process is held to its memory and shut in by no other system.")
    for module in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    content = _read(Path(file), limits.file_bytes + 1)
    if sha256 is not None and len(content) <= limits.file_bytes:  # of a longer one not all was read
        _check_sha256(content, sha256)
    found = Opened(examining.examine(content, limits), limits)
    check_fit(schema, int(np.prod(found.seen.input_shape)))
    return found


def _check_sha256(content: bytes, sha256: str) -> None:
    """Raises `NetworkInvalid` for another file; it is not run."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256.lower():
        raise NetworkInvalid(
            f"The file has the SHA-256 {digest}: it is another network than the one that is asked for.",
            [FieldError("network_sha256", "expected that of the file")],
        )


def _read(path: Path, most_bytes: int) -> bytes:
    if not path.is_file():
        raise InputInvalid(
            "There is no such file of a network: it runs on this machine, so give the path of its ONNX file; "
            "`lethe network file ID encoder.onnx` fetches that of a registered one.",
            [FieldError("network", "expected the path of an ONNX file")],
        )
    with path.open("rb") as file:
        return file.read(most_bytes)
