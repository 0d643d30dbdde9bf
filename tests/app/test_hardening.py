"""Hardening of a process, tested on separate processes."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from app import hardening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of other systems only core dumps are known here")

BEGIN = """
import ctypes, os, resource, sys
from app import hardening, telemetry
telemetry.configure("info")
print(os.getpid(), hardening.overwrites_freed_memory(), flush=True)
hardening.ensure()
print(*sys.argv[1:], resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
LOCKED = """
import re
print(re.search(r"VmLck:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
SMALL_ARRAYS = """
import ctypes
import numpy as np
from app import hardening
def left(): return sum(ctypes.string_at(place + 64, 200) == b"M" * 200 for place in places)
rows = [np.full(320, ord("M"), np.uint8) for _ in range(7)]
places = [row.ctypes.data for row in rows]
rows.clear()
print(left())
hardening.forget()
print(left())
"""
GROWN = """
import ctypes
grown = bytearray(b"M" * 400)
place = ctypes.addressof((ctypes.c_char * 400).from_buffer(grown))
grown.extend(bytes(700))
print(ctypes.addressof((ctypes.c_char * 400).from_buffer(grown)) != place, ctypes.string_at(place, 400).count(b"M"))
"""
LOCK = """
from app import hardening
from app.vault.memory import Memory
print(hardening.harden())
memory = Memory(100_000)
memory.view()[:] = bytes(100_000)
flags = open("/proc/self/smaps").read().split("memfd:rows")[1].split("VmFlags:")[1].split("\\n")[0].split()
print("lo" in flags and "dd" in flags)
"""
LOCK_UP_TO_A_LIMIT = """
import os, resource
from app import hardening
resource.setrlimit(resource.RLIMIT_MEMLOCK, (2**20, 2**20))
if os.getuid() == 0:
    os.setuid(65534)
print(hardening.harden())
"""


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in hardening.OVERWRITING}
    return subprocess.run(
        [sys.executable, *command], env=clean | environment, capture_output=True, text=True, check=True
    )


@pytest.mark.slow
def test_a_program_re_executes_itself_once() -> None:
    """The program re-executes itself once with the same arguments. After that, its process overwrites freed memory,
    writes no core file and is not dumpable."""
    first, second, last = _run("-c", BEGIN, "one", "two words").stdout.splitlines()
    pid = first.split()[0]
    assert (first, second) == (f"{pid} False", f"{pid} True")
    assert last == "one two words (0, 0) 0"


@pytest.mark.slow
def test_other_allocator_settings_are_kept() -> None:
    """Glibc tunables set by the user are kept alongside the program's own, but a Python allocator set by the user is
    replaced."""
    program = BEGIN + "print(os.environ['GLIBC_TUNABLES'])"
    given = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2:glibc.malloc.perturb=0", "PYTHONMALLOC": "pymalloc"}
    *_, overwrites, _, tunables = _run("-c", program, **given).stdout.splitlines()
    assert overwrites.endswith("True")
    assert tunables == f"{given['GLIBC_TUNABLES']}:{hardening.OVERWRITING['GLIBC_TUNABLES']}"


@pytest.mark.slow
def test_an_allocator_that_leaves_the_last_bytes_is_replaced() -> None:
    """If the allocator overwrites all but the last bytes of freed memory, as glibc's allocator does, the program
    re-executes itself with another allocator."""
    given = hardening.OVERWRITING | {"PYTHONMALLOC": "malloc"}
    first, second, _ = _run("-c", BEGIN, **given).stdout.splitlines()
    assert (first.split()[1], second.split()[1]) == ("False", "True")


@pytest.mark.slow
def test_an_unusable_allocator_is_reported() -> None:
    """A program that still does not overwrite freed memory after re-executing itself reports this once and
    continues."""
    done = _run("-E", "-c", f"import sys; sys.path.insert(0, {str(Path(hardening.__file__).parents[1])!r})\n" + BEGIN)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["False", "False", "0"]
    assert done.stderr.count("memory.freed_not_overwritten") == 1


def test_memory_is_locked_where_permitted() -> None:
    """A process that may lock memory locks all of its memory; memory that contains rows is also excluded from
    core dumps."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] != resource.RLIM_INFINITY and os.getuid() != 0:
        pytest.skip("this process may not lock its memory")
    done, of_rows, kilobytes = _run("-c", LOCK + LOCKED).stdout.split()
    assert (done, of_rows) == ("True", "True")
    assert int(kilobytes) > 1000


def test_memory_is_not_locked_under_a_low_limit() -> None:
    """A process with a low limit on locked memory locks no memory at all, so that it cannot hit the limit later during
    its work."""
    assert _run("-c", LOCK_UP_TO_A_LIMIT + LOCKED).stdout == "False\n0\n"


def test_small_arrays_are_overwritten() -> None:
    """The memory of small arrays is overwritten when numpy returns it to its cache."""
    assert _run("-c", SMALL_ARRAYS).stdout == "7\n0\n"


def test_moved_memory_is_overwritten() -> None:
    """When an object grows and moves, its old memory is overwritten completely; `pymalloc_debug` would overwrite only
    both ends."""
    assert _run("-c", GROWN, **hardening.OVERWRITING).stdout == "True 0\n"
    faster = hardening.OVERWRITING | {"PYTHONMALLOC": "pymalloc_debug"}
    assert int(_run("-c", GROWN, **faster).stdout.split()[1]) > 200
