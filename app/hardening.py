"""Hardening of a process before it handles personal data: its memory is not swapped to disk, and freed memory is
overwritten.

Freed memory normally retains its contents, possibly for weeks in the heap of a long-lived process. The allocator is
therefore configured to overwrite it. It reads its settings at program start, so a program started without these
settings re-executes itself.
"""

import ctypes
import gc
import os
import sys

from lethe.hardening import OVERWRITING, harden

_MLOCK_ONFAULT = 1
_SMALL, _KEPT = 1024, 7
"""numpy keeps freed buffers of fewer than 1024 bytes, seven per size, to reuse them for new arrays."""
_NOT_OVERWRITTEN = "People's data may stay in memory that was freed: this takes Linux with glibc as the allocator."
_NOT_LOCKED = "The memory may be swapped out: allow it to be locked (ulimit -l unlimited), encrypt swap or turn it off."


def ensure() -> None:
    """Harden the process; call this first in a long-lived program, after configuring logging. May re-execute the
    program. Log what the system does not permit."""
    from app import telemetry

    if not re_executed():
        telemetry.logger().warning("memory.freed_not_overwritten", advice=_NOT_OVERWRITTEN)
    if not harden():
        telemetry.logger().warning("memory.not_locked", advice=_NOT_LOCKED)


def re_executed() -> bool:
    """Return True if this process overwrites freed memory. Otherwise re-execute the program with the allocator settings
    that it lacks, or return False. Call this before imports, which the program would repeat."""
    overwrites = overwrites_freed_memory()
    if not overwrites and sys.platform == "linux" and (missing := _missing()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | missing)  # noqa: S606
    return overwrites


class _Room(ctypes.Structure):
    _fields_ = (("zeros", ctypes.c_char * 2**18),)


def forget() -> None:
    """Collect reference cycles, and overwrite numpy's cached buffers and the unused stack of this thread. Call this
    every second in an idle program, after `gc.freeze` of its permanent objects."""
    import numpy as np

    gc.collect()
    for size in range(1, _SMALL):
        _ = [np.zeros(size, np.uint8) for _ in range(_KEPT)]
    # getpid ignores its argument, 256 KiB of zeros on the stack.
    ctypes.CDLL(None).getpid(_Room())


def lock(address: int, size: int) -> bool:
    """Keep each page of this memory out of swap from its first use. Return False if the system limits locked memory."""
    if sys.platform != "linux":
        return False
    start, length = ctypes.c_void_p(address), ctypes.c_size_t(size)
    return bool(ctypes.CDLL(None).mlock2(start, length, _MLOCK_ONFAULT) == 0)


def overwrites_freed_memory() -> bool:
    """Return True if freed values cannot be found at their previous addresses, as far as a test can show."""
    # With its terminating zero, this fills the last eight bytes of a chunk.
    needle = os.urandom(7)
    freed = [bytes(length) + needle for length in range(8, 264)]
    places = [(id(value), sys.getsizeof(value)) for value in freed]
    freed.clear()
    return not any(needle in ctypes.string_at(place, size) for place, size in places)


def _missing() -> dict[str, str]:
    """Return the allocator settings that the environment lacks."""
    wanted = dict(OVERWRITING)
    if tunables := os.environ.get("GLIBC_TUNABLES"):
        ours = wanted["GLIBC_TUNABLES"]
        # The last of several values applies.
        wanted["GLIBC_TUNABLES"] = tunables if tunables.endswith(ours) else f"{tunables}:{ours}"
    return {name: value for name, value in wanted.items() if os.environ.get(name) != value}
