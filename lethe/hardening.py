"""Hardening of a process that holds people's data or a customer's network: its memory must never reach a file."""

import ctypes
import sys
from pathlib import Path

OVERWRITING = {
    # glibc's perturb leaves the last eight bytes of a small chunk, where a float has its value, and the thread caches.
    # pymalloc_debug, which is faster, leaves all but 64 bytes at either end of a block that realloc has moved. Arrow's
    # own pool is not overwritten.
    "PYTHONMALLOC": "malloc_debug",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Environment variables that make a program overwrite the memory it frees."""
_PR_SET_DUMPABLE = 4
_CAP_IPC_LOCK = 14
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


def harden() -> bool:
    """Disable core dumps and, on Linux, swap and debugging by other processes. Return True if swap is disabled. Child
    processes must call this as well: they inherit only the allocator settings."""
    # Windows does not have this module.
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0)
    return _may_lock_all() and libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0


def _may_lock_all() -> bool:
    """Return True if this process can lock all its memory. Under a finite limit, later allocations could fail."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
        return True
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _CAP_IPC_LOCK & 1)
