"""Hardening of a process before it meets people's data: its memory gets into no file, and forgets what it frees.

A program that frees memory leaves it as it was: what people sent would stay in the heap of a long-lived process, for
weeks maybe. Here the allocator overwrites what is freed. Its settings are read when a program starts; so a program
that was started without them starts itself once more, as the same process.
"""

import ctypes
import gc
import os
import sys

import numpy as np
import numpy.typing as npt

from app import telemetry
from lethe.hardening import OVERWRITING, harden

_MLOCK_ONFAULT = 1
_SMALL, _KEPT = 1024, 7
"""numpy keeps the memory of arrays of fewer bytes when they are freed, seven of each size, for the next such arrays."""
_NOT_OVERWRITTEN = "People's data may stay in memory that was freed: this takes Linux with glibc as the allocator."
_NOT_LOCKED = "The memory may be swapped out: allow it to be locked (ulimit -l unlimited), encrypt swap or turn it off."


def ensure() -> None:
    """The first thing that a long-lived program does, after it knows where to log. May start it again.

    What the system does not let it do is logged.
    """
    overwrites = overwrites_freed_memory()
    if not overwrites and sys.platform == "linux" and (missing := _missing()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | missing)  # noqa: S606
    if not overwrites:
        telemetry.logger().warning("memory.freed_not_overwritten", advice=_NOT_OVERWRITTEN)
    if not harden():
        telemetry.logger().warning("memory.not_locked", advice=_NOT_LOCKED)


class _Room(ctypes.Structure):
    _fields_ = (("zeros", ctypes.c_char * 2**18),)


def forget() -> None:
    """Free what is only held by itself, and overwrite what functions that have returned left on this thread's stack.

    For a program that idles, every second; it has frozen (`gc.freeze`) what it holds for good.
    """
    gc.collect()
    for size in range(1, _SMALL):
        _ = [np.zeros(size, np.uint8) for _ in range(_KEPT)]
    ctypes.CDLL(None).getpid(_Room())  # called with so many zeros, which it does not look at


def lock(memory: npt.NDArray[np.uint8]) -> bool:
    """Keep this memory out of swap, each page once there is something in it; False where the system does not allow so
    much to be locked."""
    if sys.platform != "linux":
        return False
    start, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes)
    return bool(ctypes.CDLL(None).mlock2(start, size, _MLOCK_ONFAULT) == 0)


def overwrites_freed_memory() -> bool:
    """Tell whether this process does, as far as can be seen: values are freed, and looked for where they were."""
    needle = os.urandom(7)  # with the zero after it, the last eight bytes of a chunk
    freed = [bytes(length) + needle for length in range(8, 264)]
    places = [(id(value), sys.getsizeof(value)) for value in freed]
    freed.clear()
    return not any(needle in ctypes.string_at(place, size) for place, size in places)


def _missing() -> dict[str, str]:
    """The allocator's settings, as far as the environment has not got them."""
    wanted = dict(OVERWRITING)
    if given := os.environ.get("GLIBC_TUNABLES"):
        ours = wanted["GLIBC_TUNABLES"]
        wanted["GLIBC_TUNABLES"] = given if given.endswith(ours) else f"{given}:{ours}"  # the last of several counts
    return {name: value for name, value in wanted.items() if os.environ.get(name) != value}
