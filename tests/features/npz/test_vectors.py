from pathlib import Path
from typing import Any

import numpy as np

from lethe.contract.problems import InputInvalid
from lethe.encoding.schema import parse_schema
from tests.app.rows.written import refused
from tests.tables import each

EMBEDDED = parse_schema(
    {
        "columns": {
            "e": {"kind": "vector", "length": 2, "center": 1, "scale": 2},
            "since": {"kind": "datetime", "min": "2000-01-01", "max": "2000-01-05"},
            "income": {"role": "label", "values": ["0", "1"]},
            "person": {"role": "subject"},
        }
    }
)
VECTORS = [[1.0, 2.0], [3.0, 4.0]]
DATES = ["2000-01-02", "2000-01-03"]


@each(
    "arrays",
    [
        {"e": np.ones((2, 3))},
        {"e": np.ones(2)},
        {"e": np.array([["a", "b"]] * 2)},
        {"since": np.ones((2, 1))},
        {"income": np.array([0, 1, 1])},
        {"person": np.array([1 + 2j, 1])},
    ],
)
def test_arrays_of_another_shape_are_refused(tmp_path: Path, arrays: Any) -> None:
    """In an npz table, an array whose shape or type does not match its column is refused, and the error names the
    array."""
    rows = {
        "e": np.array(VECTORS),
        "since": np.array(DATES),
        "income": np.array([0, 1]),
        "person": np.array(["a", "b"]),
    }
    np.savez(tmp_path / "rows.npz", **(rows | arrays))
    assert refused(tmp_path / "rows.npz", "npz", InputInvalid, EMBEDDED)[0] in EMBEDDED.declared
