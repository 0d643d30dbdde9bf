"""A file that comes for the first time: it is looked at in a process apart, and run twice, before anybody takes it."""

import hashlib
from dataclasses import dataclass
from typing import Any

from lethe.contract.problems import FieldError, NetworkInvalid, UploadTooLarge
from lethe.encoders import process
from lethe.encoders.limits import Limits

_ZIP, _PICKLE = b"PK", b"\x80"
_ONNX = b"\x08"
"""The first byte of a file: the tag of its version, which is field 1 and comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A file that may be taken, and what it is; not yet known to anybody."""

    content: bytes
    sha256: str
    facts: dict[str, Any]


def examine(content: bytes, limits: Limits) -> Examined:
    """Look at a file in a process apart, and run it twice.

    Raises `NetworkInvalid`, `NetworkFailed`, `UploadTooLarge`.
    """
    if len(content) > limits.file_bytes:
        most = f"The network has more than {limits.file_bytes} bytes"
        raise UploadTooLarge(f"{most}; send a smaller one, or raise LETHE_MAX_NETWORK_BYTES.")
    if content.startswith((_ZIP, _PICKLE)):
        raise NetworkInvalid(
            "The file is a pickle or a zip (.pt, .pth, .pkl), which may hold code that runs when it is opened; export"
            " the network to ONNX (torch.onnx.export).",
            [FieldError("file", "expected an ONNX file")],
        )
    if not content.startswith(_ONNX):  # needs no process to be seen
        raise NetworkInvalid(
            "The file is no ONNX file; export the network to ONNX again.", [FieldError("file", "expected an ONNX file")]
        )
    with process.examined(content, limits) as encoder:
        facts = encoder.facts
    return Examined(content=content, sha256=hashlib.sha256(content).hexdigest(), facts=facts)
