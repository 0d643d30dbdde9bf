"""The search of memory, tested on processes that hold or have freed something, and then on all processes of the
service."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.forensics import memory
from tests.forensics.finder import Finder

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="reading memory takes Linux and root"
)

VICTIM = """
import gc, os, struct
if {hardened}:
    from app import hardening
    hardening.ensure()
print("ready", flush=True)
held = [os.read(0, 64) + number.to_bytes(2) for number in range(100)]
small = [one[:length] for one in held for length in range(8, 64)]
numbers = [struct.unpack("<8d", one[:64]) for one in held]
large = b"".join(held) * 100
text = [one.decode("latin-1") for one in held]
print("held", flush=True)
os.read(0, 64)
del small, numbers, large, text, held
gc.collect()  # Python keeps the last hundred floats
print("freed", flush=True)
os.read(0, 64)
"""


@contextmanager
def _victim(*, hardened: bool) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """Start a process that holds a needle in many places, and yield the process and the needle. When it receives a
    line, the process frees all copies."""
    needle = secrets.token_bytes(64)
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM.format(hardened=hardened)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            assert process.stdin
            _hear(process, "ready")
            for _ in range(100):
                process.stdin.write(needle)
            _hear(process, "held")
            yield process, needle
        finally:
            process.kill()


def _hear(process: subprocess.Popen[bytes], what: str) -> None:
    assert process.stdout
    while (line := process.stdout.readline().decode().strip()) != what:
        assert line, f"The process ended before it said {what}"


def _free(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.write(b"\n")
    _hear(process, "freed")


@pytest.mark.slow
@pytest.mark.parametrize("hardened", [False, True])
def test_memory_in_use_is_searched(hardened: bool) -> None:
    """The search finds every occurrence of the needles in a process's memory, hardened or not, and reports where each
    one is. It finds nothing else."""
    with _victim(hardened=hardened) as (process, needle):
        needles = {"whole": needle, "end": needle[-20:], "nowhere": needle[::-1]}
        found = memory.search(process.pid, needles)
        assert found["whole"] >= 100 + 10_000 + 100
        assert found["end"] >= found["whole"]
        assert "nowhere" not in found
        hits = list(memory.find(process.pid, Finder(needles), around=8))
        assert all(hit.around[8:-8].endswith(needle[-20:]) for hit in hits if hit.name == "whole")


def test_freed_memory_is_searched() -> None:
    """The search finds content that a process without hardening has freed."""
    with _victim(hardened=False) as (process, needle):
        _free(process)
        assert memory.search(process.pid, {"start": needle[16:40]})["start"] > 10


@pytest.mark.slow
def test_hardened_processes_overwrite_freed_memory() -> None:
    """In a hardened process, the search finds none of the freed content, not even a single number."""
    with _victim(hardened=True) as (process, needle):
        _free(process)
        assert memory.search(process.pid, {f"at {at}": needle[at : at + 8] for at in range(0, 57)}) == {}


def test_a_needle_across_pages_is_found_once() -> None:
    """A needle is found exactly once, even if it straddles a page boundary or the boundary between two chunks that are
    read separately."""
    program = """
import mmap, os
needle, anonymous = os.read(0, 64), mmap.mmap(-1, 20 * 2**20)
for page in range(1, 5120):
    anonymous[page * 4096 - page % 64 : page * 4096 - page % 64 + 64] = needle
del needle
print("held", flush=True)
os.read(0, 1)
"""
    needle = secrets.token_bytes(64)
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin
            process.stdin.write(needle)
            process.stdin.flush()
            _hear(process, "held")
            places = {
                hit.address
                for hit in memory.find(process.pid, Finder({"needle": needle}))
                if hit.mapping == "/dev/zero (deleted)"
            }
            assert len(places) == 5119
        finally:
            process.kill()
