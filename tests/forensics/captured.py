"""Values that a chain computed and that must never be stored, recorded by the probe in the worker's processes."""

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.forensics.forms import Patterns
from tests.forensics.probe.sitecustomize import MASK

FOLDER = Path(__file__).with_name("probe")
"""Folder that is added to PYTHONPATH."""


def patterns(noted: Iterable[Path], *, but: Collection[bytes] = ()) -> Patterns:
    """Return patterns of the gradients and iterates, with and without noise, that the probe wrote to these files.
    Weights in `but`, which may remain readable, are left out."""
    found: Patterns = {}
    for path in sorted(noted):
        content = (np.fromfile(path, dtype="u1") ^ MASK).tobytes()
        whole = len(content) - len(content) % 8  # a worker may have been killed while writing this
        if whole >= 16 and content not in but:
            found |= of_weights(path.name, np.frombuffer(content[:whole]))
    return found


def of_weights(name: str, weights: NDArray[np.float64]) -> Patterns:
    """Return patterns of adjacent weights at the beginning, the middle and the end, which are enough to recognise the
    rest."""
    row, found = weights.ravel(), Patterns()
    for at in sorted({0, len(row) // 2, len(row) - 2}):
        for kind in ("<f8", ">f8", "<f4"):
            found[f"{name}[{at}], {kind}"] = row[at : at + 2].astype(kind).tobytes()
    return found
