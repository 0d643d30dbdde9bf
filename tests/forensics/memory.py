"""The memory of a live process, searched like an examiner with root would: every page of it.

All mappings of a process are searched: its heaps, stacks, anonymous memory, and pages of files. The search reads
`/proc/PID/mem` into its own buffer, and leaves nothing in the process that is searched."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from tests.forensics.finder import Finder

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGES = 1024
"""Number of pages that are read at once."""
_THERE, _OF_A_FILE = np.uint64(0b11 << 62), np.uint64(1 << 61)
"""Bits of a page in `/proc/PID/pagemap`: present or swapped out (others were never touched), and belonging to a
file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Place of a needle: its mapping (`[heap]`, a path, empty for anonymous memory), and the bytes around it."""

    name: str
    mapping: str
    address: int
    around: bytes


def search(pid: int, needles: Mapping[str, bytes]) -> Counter[str]:
    """Count the occurrences of each needle in the process's memory; equal to `{}` if there are none.

    Raises `PermissionError` if this process may not read that memory; reading a hardened process requires root."""
    return Counter(hit.name for hit in find(pid, Finder(needles)))


def find(pid: int, finder: Finder, *, around: int = 0) -> Iterator[Hit]:
    """Yield each occurrence of each pattern, with `around` bytes before and after it."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for mapping, start, end in _touched(pid):
            content = _read(memory.fileno(), start, end + finder.longest - 1)
            for name, place in finder.places(content):
                if place < end - start:  # otherwise it belongs to the next piece
                    seen = content[max(0, place - around) : place + len(finder.patterns[name]) + around]
                    yield Hit(name=name, mapping=mapping, address=start + place, around=seen)


def _touched(pid: int) -> Iterator[tuple[str, int, int]]:
    """Yield the mapping, start and end of runs of pages with content, each short enough for a single read.

    Private file pages that were never written to, such as a library's code, are left out."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for mapping, start, end, shared in _mappings(pid):
            for first in range(start // _PAGE, end // _PAGE, _PAGES):
                count = min(_PAGES, end // _PAGE - first)
                entries = np.frombuffer(os.pread(pagemap.fileno(), 8 * count, 8 * first), np.uint64)
                there = np.flatnonzero((entries & _THERE != 0) & (shared | (entries & _OF_A_FILE == 0)))
                for _, run in groupby(enumerate(there.tolist()), lambda one: one[1] - one[0]):
                    pages = [page for _, page in run]
                    yield mapping, (first + pages[0]) * _PAGE, (first + pages[-1] + 1) * _PAGE


def _mappings(pid: int) -> Iterator[tuple[str, int, int, bool]]:
    """Yield the name, start and end of each readable mapping, and whether the mapping is shared."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        limits, rights, _offset, _device, _inode, *name = line.split(maxsplit=5)
        if "r" in rights and name != ["[vsyscall]"]:  # the kernel's mapping, which cannot be read
            start, end = (int(limit, 16) for limit in limits.split("-"))
            yield name[0] if name else "", start, end, rights.endswith("s")


def _read(memory: int, start: int, end: int) -> bytes:
    """Return the memory from `start` to `end`; fewer bytes or none if part of it is no longer mapped."""
    try:
        return os.pread(memory, end - start, start)
    except OSError:
        return b""
