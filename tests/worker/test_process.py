"""What a worker does to its own process before it touches a record."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from worker import process
process.harden()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_no_core_dump_and_no_debugger() -> None:
    """A hardened process leaves no core file and is not dumpable, so that no other process may attach to it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "(0, 0) 0\n"
