"""Hardening of a process that has people's data or somebody's network: its memory gets into no file, and it inherits no
passwords."""

import ctypes
import os
import sys
from pathlib import Path

OVERWRITING = {
    "PYTHONMALLOC": "malloc_debug",  # glibc leaves a small chunk's last eight bytes, where a float has its number
    "GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0",  # what is in a thread's cache is not
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # nor does Arrow's
}
"""The environment of a program that overwrites what it frees."""
_PR_SET_DUMPABLE = 4
_CAP_IPC_LOCK = 14
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


def bare_environment() -> dict[str, str]:
    """The environment for a process that runs what others made: the allocator's settings and where programs are, and
    none of the passwords that may be in the rest."""
    names = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", *OVERWRITING)
    return {name: os.environ[name] for name in names if name in os.environ}


def harden() -> bool:
    """No core dumps; on Linux no debugger of another process, and nothing in swap. Whether that last is so.

    For children too: of all this they inherit only how memory is allocated.
    """
    import resource  # Windows has none

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0)
    return _may_lock_all() and libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0


def _may_lock_all() -> bool:
    """Without a limit: up to one it would fail later, in the middle of something."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
        return True
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _CAP_IPC_LOCK & 1)
