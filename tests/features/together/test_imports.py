"""Imports of a gateway before its first call, which every start pays for."""

import subprocess
import sys

import pytest

HEAVY = {"matplotlib", "onnx", "onnxruntime", "pandas", "scipy.optimize", "scipy.special", "sklearn", "torch"}


@pytest.mark.soak
def test_a_gateway_starts_without_rarely_used_libraries() -> None:
    """Libraries that are slow to import are loaded by the first call that needs them, not when the gateway starts."""
    program = f"import sys; from app import main; main._routes(); print(*({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
