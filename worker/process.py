"""What a worker process does to itself before it touches a record."""

import ctypes
import resource
import sys


def harden() -> None:
    """No core dumps, and (on Linux) no debugger of another process may attach: memory that held people stays here."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pr_set_dumpable = 4
        ctypes.CDLL(None).prctl(pr_set_dumpable, 0)
