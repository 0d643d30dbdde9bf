"""Memory for plaintext rows, kept out of files, swap and core dumps, and shared by descriptor with a run's processes.

If `RLIMIT_MEMLOCK` prevents locking, the memory may be swapped out; every long-lived program reports this at startup
(`app/hardening.py`).
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
    """Memory of fixed size, zero and unallocated until written. Other processes can map it through `descriptor`."""

    def __init__(self, size: int) -> None:
        self.descriptor = _anonymous_file()
        try:
            os.ftruncate(self.descriptor, size)
            self._mapped = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise
        if hasattr(mmap, "MADV_DONTDUMP"):
            self._mapped.madvise(mmap.MADV_DONTDUMP)
        hardening.lock(self._bytes().ctypes.data, size)

    def view(self) -> memoryview:
        return memoryview(self._mapped)

    def forget(self, start: int, size: int) -> None:
        """Overwrite a range of bytes with zeros, and release its memory."""
        self._bytes()[start : start + size] = 0
        # Only Linux can release the memory; elsewhere the zeros remain.
        if sys.platform == "linux":
            mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
            offset, length = ctypes.c_int64(start), ctypes.c_int64(size)
            ctypes.CDLL(None).fallocate(self.descriptor, mode, offset, length)

    def close(self) -> None:
        """Close the memory. The caller must have called `forget` for everything written."""
        os.close(self.descriptor)
        # An exported view, which now shows zeros, may outlive the memory.
        with contextlib.suppress(BufferError):
            self._mapped.close()

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._mapped, dtype=np.uint8)


def _anonymous_file() -> int:
    """Return the descriptor of a new, unnamed file in memory."""
    if sys.platform == "linux":
        return os.memfd_create("rows")
    import _posixshmem

    name = f"/lethe-{secrets.token_hex(8)}"
    descriptor = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    _posixshmem.shm_unlink(name)
    return descriptor


def half() -> int:
    """Return half of this machine's or container's memory, in bytes."""
    num_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # A container without a limit lacks the file, or has "max" in it.
    with contextlib.suppress(OSError, ValueError):
        num_bytes = min(num_bytes, int(_CGROUP.read_text()))
    return num_bytes // 2
