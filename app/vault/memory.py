"""Memory for rows in the clear: in no file, swap or core dump, shared by descriptor with the processes of a run.

Where the system does not let a process lock so much (`RLIMIT_MEMLOCK`), the memory may be swapped out; every
long-lived program says so when it starts (`app/hardening.py`).
"""

import contextlib
import ctypes
import mmap
import os
import secrets
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app import hardening

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2


class Memory:
    """So many bytes, zero at first; what is never written to takes no memory. `descriptor`: what another process
    maps."""

    def __init__(self, size: int) -> None:
        self.descriptor = _nowhere()
        try:
            os.ftruncate(self.descriptor, size)
            self._mapped = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise
        if hasattr(mmap, "MADV_DONTDUMP"):
            self._mapped.madvise(mmap.MADV_DONTDUMP)
        hardening.lock(self._bytes())

    def view(self) -> memoryview:
        return memoryview(self._mapped)

    def forget(self, start: int, size: int) -> None:
        """Overwrite these bytes, and give back the memory that they took."""
        self._bytes()[start : start + size] = 0
        if sys.platform == "linux":  # elsewhere they stay zeros that take memory
            given_back = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
            offset, length = ctypes.c_int64(start), ctypes.c_int64(size)
            ctypes.CDLL(None).fallocate(self.descriptor, given_back, offset, length)

    def close(self) -> None:
        """Close it; the caller has forgotten all that was written."""
        os.close(self.descriptor)
        with contextlib.suppress(BufferError):  # somebody still reads the zeros
            self._mapped.close()

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._mapped, dtype=np.uint8)


def _nowhere() -> int:
    """A new file without a name or a disk."""
    if sys.platform == "linux":
        return os.memfd_create("rows")
    import _posixshmem

    name = f"/lethe-{secrets.token_hex(8)}"
    descriptor = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    _posixshmem.shm_unlink(name)
    return descriptor


def half() -> int:
    """Half the bytes of memory that this machine, or this container, has."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # there is no such limit
        there = min(there, int(_CGROUP.read_text()))
    return there // 2
