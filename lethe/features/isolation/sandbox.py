"""Sandbox for a process that reads an untrusted file: few system calls, no files, no child processes, never root.

To its runtime, a network is data. But runtimes have bugs, so the process is assumed to execute any code in the file. It
can do only what is listed below; everything else fails with EPERM:

- a seccomp filter lets it compute, read and write what is open, and exit. It can neither start a process, a thread or a
  program, nor open, change or remove a file, nor reach a socket or another process, nor make memory executable;
- Landlock, on kernels that have it (5.13 and later), also forbids all files and, later, TCP and signals to others;
- limits on memory, time, descriptors (only those already open) and processes (none) apply even without these two;
- root becomes the user `NOBODY`, without groups and capabilities. A process of another user keeps its user.

It runs on Linux on x86-64 and arm64. `enter` raises elsewhere, and if anything other than Landlock is missing.
"""

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import struct
import sys
import time

NOBODY = 65534
"""User and group of a sandboxed process that root started."""
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 1, 22, 2, 38
_RETURN_ALLOW, _RETURN_EPERM, _RETURN_KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000
# BPF_LD|W|ABS, JEQ|K, JSET|K and RET|K.
_LOAD, _JUMP_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
# Offsets in `struct seccomp_data`; the third argument of mmap and mprotect is the protection.
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
_PROT_EXEC = 4

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "brk": (12, 214),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "clock_gettime": (228, 113),
    "getrandom": (318, 278),
    "restart_syscall": (219, 128),
    "rt_sigreturn": (15, 139),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
"""Permitted system calls with their numbers on x86-64 and arm64, in the order of `_ARCHITECTURES`."""
_PROTECTING = {"mmap": (9, 222), "mprotect": (10, 226)}
"""System calls permitted only without PROT_EXEC, with their numbers."""
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446


class NotSandboxed(Exception):
    """The process cannot be sandboxed on this system. The message gives the reason but names no file."""


def drop_root() -> None:
    """Become `NOBODY` if any of this process's user ids is root. Raises `NotSandboxed` if it remains root."""
    if 0 not in os.getresuid():
        return
    # Root may lock its memory (`hardening.harden`) by a capability, others only by this limit.
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:
        raise NotSandboxed("root cannot become another user") from None


def enter(*, memory_bytes: int, cpu_seconds: int | None = None) -> None:
    """Sandbox this process irrevocably, limiting it to `cpu_seconds` of processor time from now on.

    If this raises `NotSandboxed`, the process must not read the untrusted file.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES:
        raise NotSandboxed("the sandbox is for Linux on x86-64 and arm64")
    drop_root()
    # Landlock and the filter apply to the calling thread, and not to others that already run.
    if len(os.listdir("/proc/self/task")) != 1:
        raise NotSandboxed("the process has more than one thread")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise NotSandboxed("the kernel refuses prctl")
    _close_files(libc)
    limits = dict.fromkeys(("FSIZE", "CORE", "NPROC", "NOFILE", "MSGQUEUE"), 0) | {"AS": memory_bytes}
    if cpu_seconds is not None:
        limits["CPU"] = math.ceil(time.process_time()) + cpu_seconds
    for name, maximum in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (maximum, maximum))
    program = _filter(list(_ARCHITECTURES).index(machine), _ARCHITECTURES[machine])
    instructions = ctypes.create_string_buffer(program, len(program))
    loaded = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(loaded), 0, 0):
        raise NotSandboxed("the kernel has no seccomp filters")


def _close_files(libc: ctypes.CDLL) -> bool:
    """Use Landlock to block files, TCP, and signals to other processes. Return False if the kernel lacks it."""
    # With this flag the call returns the version of Landlock.
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    ports, scopes = (0b11 if version >= since else 0 for since in (4, 6))
    # `struct landlock_ruleset_attr`; fields that a kernel does not know must be 0.
    rules = struct.pack("QQQ", files, ports, scopes)
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    if ruleset < 0 or libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0):
        raise NotSandboxed("the kernel has Landlock and refuses it")
    os.close(ruleset)
    return True


def _filter(column: int, architecture: int) -> bytes:
    """Build a classic BPF program over `struct seccomp_data` that allows the system calls in a column of `_ALLOWED`."""
    protecting, allowed = ([numbers[column] for numbers in calls.values()] for calls in (_PROTECTING, _ALLOWED))
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _RETURN_KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    # Skip the remaining comparisons: 0 refuses, 1 allows, 2 compares the protection.
    numbers = [(number, 1) for number in allowed] + [(number, 2) for number in protecting]
    steps += [(_JUMP_EQUAL, len(numbers) - 1 - place + end, 0, number) for place, (number, end) in enumerate(numbers)]
    steps += [
        (_RETURN, 0, 0, _RETURN_EPERM),
        (_RETURN, 0, 0, _RETURN_ALLOW),
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        (_JUMP_IF_SET, 0, 1, _PROT_EXEC),
        (_RETURN, 0, 0, _RETURN_EPERM),
        (_RETURN, 0, 0, _RETURN_ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
