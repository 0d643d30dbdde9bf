"""The sandbox of a process that runs a foreign network: no sockets, no programs, no files, limited memory.

A network is data to its runtime, but runtimes have faults. The process can therefore open no connection and no file and
start no program, whatever code it executes. On Linux on x86-64 and arm64 an irrevocable seccomp filter enforces this.
On other processors and on kernels without seccomp, only the limits of memory and file size hold, as `enter` reports.
"""

import ctypes
import platform
import resource
import signal
import struct
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_RETURN_ALLOW = 0x7FFF0000
_RETURN_EPERM = 0x00050000 | 1
_RETURN_KILL = 0x80000000
# BPF_LD|W|ABS, JEQ|K, JGE|K and RET|K.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06

_FORBIDDEN = {
    "x86_64": {
        # socket connect accept sendto bind listen socketpair accept4, fork vfork execve execveat, ptrace
        *(41, 42, 43, 44, 49, 50, 53, 288, 57, 58, 59, 322, 101),
        # open creat openat openat2 rename link unlink symlink renameat linkat unlinkat, io_uring, process_vm_*, bpf
        *(2, 85, 257, 437, 82, 86, 87, 88, 264, 265, 263, 316, 425, 426, 427, 310, 311, 321, 435),
    },
    "aarch64": {
        # socket socketpair bind listen accept connect sendto accept4, execve execveat, ptrace
        *(198, 199, 200, 201, 202, 203, 206, 242, 221, 281, 117),
        # openat openat2 renameat linkat unlinkat symlinkat renameat2, io_uring, process_vm_*, bpf, clone3
        *(56, 437, 38, 37, 35, 36, 276, 425, 426, 427, 270, 271, 280, 435),
    },
}
"""Numbers of the system calls that fail with EPERM: those that open connections or files, or start programs."""
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
"""First number of a system call of the x32 ABI on the same processor."""


def enter(*, memory_bytes: int) -> bool:
    """Sandbox this process irrevocably; return True if it can no longer open connections or files."""
    for limit, maximum in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (maximum, maximum))
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    machine = platform.machine()
    if machine not in _FORBIDDEN or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    program = _filter(_AUDIT_ARCH[machine], sorted(_FORBIDDEN[machine]))
    instructions = ctypes.create_string_buffer(program, len(program))
    loaded = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(loaded), 0, 0) == 0)


def _filter(architecture: int, forbidden: list[int]) -> bytes:
    """Build a classic BPF program over `struct seccomp_data`: the number is at offset 0, the architecture at 4."""
    steps = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _RETURN_KILL),
        (_LOAD, 0, 0, 0),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _RETURN_KILL),
    ]
    for place, number in enumerate(forbidden):
        steps.append((_JUMP_EQUAL, len(forbidden) - place, 0, number))
    steps += [(_RETURN, 0, 0, _RETURN_ALLOW), (_RETURN, 0, 0, _RETURN_EPERM)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
