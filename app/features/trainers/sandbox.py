"""Sandbox for trainers: bubblewrap, with no network and one writable folder that exists only in its memory.

The folder is an in-memory file system in the sandbox's own mount namespace. Its processes run in their own process
namespace. The kernel ends this namespace, and the folder with it, when the worker's thread ends: nothing is left to
clean up, however the worker dies. Outputs leave through an in-memory file of fixed size.

A seccomp filter kills any process that opens a socket of a family other than AF_UNIX. There is no network interface to
connect through anyway; the filter makes the attempt known.
"""

import contextlib
import fcntl
import io
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.features.trainers import inside

_POLL_SECONDS = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FOLDER = "/trainer"
_READ_ONLY = ("/tmp", "/var/tmp", "/run")  # noqa: S108  paths of the sandbox
_NOBODY = 65534
# Numbers of AUDIT_ARCH, socket() and io_uring_setup().
_ARCHITECTURES = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AF_UNIX = 1
_X32 = 0x40000000
_STATUSES = {
    # Exit status of bubblewrap itself: the kernel or the container refuses its namespaces.
    1: "trainer_sandbox_missing",
    inside.OPENED_SOCKET: "trainer_opened_socket",
    inside.WROTE_OUTSIDE: "trainer_wrote_outside",
    inside.FAILED: "trainer_failed",
    inside.OUTPUT_INVALID: "trainer_output_invalid",
    inside.OUTPUT_TOO_LARGE: "trainer_output_too_large",
}


class TrainerRefused(Exception):
    """Refusal of a trainer for the reason `code`. Of its results, only the plants' `findings` are kept."""

    def __init__(self, code: str, findings: Mapping[str, Any] | None = None) -> None:
        super().__init__(code)
        self.code, self.findings = code, dict(findings or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Limits on a command: duration in seconds, memory of its processes in bytes (and as much again for its folder),
    number of processes, and size of its outputs in bytes."""

    seconds: float
    memory_bytes: int
    processes: int
    output_bytes: int


def require() -> None:
    """Raise `TrainerRefused` (`trainer_sandbox_missing`) if this machine has no sandbox for trainers."""
    if (
        sys.platform != "linux"
        or platform.machine() not in _ARCHITECTURES
        or shutil.which("bwrap") is None
        or not Path(f"/proc/self/task/{os.getpid()}/children").exists()
    ):
        raise TrainerRefused("trainer_sandbox_missing")


def run(
    command: Sequence[str],
    *,
    files: Mapping[str, bytes],
    environment: Mapping[str, str],
    limits: SandboxLimits,
    outputs: Sequence[str],
    folders: Sequence[str] = (),
    look: Callable[[], None] = lambda: None,
) -> dict[str, bytes]:
    """Run a command in a folder with `files` and the empty `folders`, and return its `outputs` by path. Each output
    must be a regular file. `look` is called every 50 ms while the command runs; if it raises, the command is killed.

    Raises:
        TrainerRefused: if the command fails, exceeds a limit, opens a socket, or leaves unusable outputs.
    """
    require()
    with contextlib.ExitStack() as stack:
        output = _memory(stack, "outputs")
        size = limits.output_bytes + 2**20
        os.ftruncate(output, size)
        # Unsealed, the file could be grown from inside the sandbox, in memory that `_usage` does not count.
        fcntl.fcntl(output, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        order = {"command": list(command), "files": list(outputs), "max_bytes": limits.output_bytes, "output": output}
        descriptors = {name: _filled(stack, content) for name, content in files.items()}
        program = _filled(stack, Path(inside.__file__).read_bytes())
        seccomp = _filled(stack, _filter())
        arguments = ["--seccomp", str(seccomp), *_isolation(), "--size", str(limits.memory_bytes)]
        arguments += ["--tmpfs", _FOLDER, "--perms", "0444", "--file", str(program), "/lethe/inside.py"]
        for folder in sorted({*folders, *(str(Path(name).parent) for name in files if "/" in name)}):
            arguments += ["--dir", f"{_FOLDER}/{folder}"]
        for name, descriptor in descriptors.items():
            arguments += ["--file", str(descriptor), f"{_FOLDER}/{name}"]
        # An attempt to write there fails as read-only, which identifies it.
        arguments += [option for path in _READ_ONLY for option in ("--dir", path)]
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", _FOLDER]
        for name, value in (_environment() | dict(environment)).items():
            arguments += ["--setenv", name, value]
        # Options are not on the command line, which every user of the machine can read: one has the seed.
        options = _filled(stack, b"".join(f"{argument}\0".encode() for argument in arguments))
        program_line = [sys.executable, "-I", "-S", "/lethe/inside.py", json.dumps(order)]
        process = subprocess.Popen(  # noqa: S603  no shell
            ["bwrap", "--args", str(options), "--", *program_line],  # noqa: S607  found by `require`
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[output, program, seccomp, options, *descriptors.values()],
            start_new_session=True,
        )
        try:
            status = _wait(process, limits, look)
        finally:
            # The namespace of its processes ends with bubblewrap.
            process.kill()
            process.wait()
        if status:
            raise TrainerRefused(_STATUSES.get(status, "trainer_failed"))
        os.lseek(output, 0, os.SEEK_SET)
        with open(output, "rb", closefd=False) as file:
            return _unpacked(file.read(size))


def _isolation() -> list[str]:
    """Return bubblewrap's options for the namespaces and for the readable paths (programs and libraries)."""
    options = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    options += ["--cap-drop", "ALL", "--clearenv", "--uid", str(_NOBODY), "--gid", str(_NOBODY)]
    options += ["--hostname", "trainer", "--proc", "/proc", "--dev", "/dev"]
    for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"):
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        else:
            options += ["--ro-bind-try", path, path]
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix)):
        if not Path(prefix).is_relative_to("/usr"):
            options += ["--ro-bind", prefix, prefix]
    return options


def _environment() -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": _FOLDER,
        "TMPDIR": _FOLDER,
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def _memory(stack: contextlib.ExitStack, name: str) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, descriptor)
    return descriptor


def _filled(stack: contextlib.ExitStack, content: bytes) -> int:
    descriptor = _memory(stack, "input")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _filter() -> bytes:
    """Build the seccomp program (classic BPF over `struct seccomp_data`)."""
    architecture, socket, io_uring_setup = _ARCHITECTURES[platform.machine()]
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 5, 0, _X32),
        (_EQUAL, 5, 0, io_uring_setup),
        (_EQUAL, 1, 0, socket),
        (_RETURN, 0, 0, _ALLOW),
        # The first argument of socket() is the family.
        (_LOAD, 0, 0, 16),
        (_EQUAL, 2, 0, _AF_UNIX),
        (_RETURN, 0, 0, _KILL),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _wait(process: "subprocess.Popen[bytes]", limits: SandboxLimits, look: Callable[[], None]) -> int:
    ends_at = time.monotonic() + limits.seconds
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_POLL_SECONDS)
        if time.monotonic() > ends_at:
            raise TrainerRefused("trainer_time_exceeded")
        processes, memory = _usage(process.pid)
        if memory > limits.memory_bytes:
            raise TrainerRefused("trainer_memory_exceeded")
        # Bubblewrap itself, its init, and the program that runs the command.
        if processes > limits.processes + 3:
            raise TrainerRefused("trainer_processes_exceeded")
        look()


def _usage(pid: int) -> tuple[int, int]:
    """Count a process and its descendants. Return their number and the bytes of memory that they use."""
    count, memory, pids = 0, 0, [pid]
    for pid in pids:
        # A process may end at any time.
        with contextlib.suppress(OSError, ValueError):
            memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
            count += 1
            for task in os.listdir(f"/proc/{pid}/task"):
                pids += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return count, memory


def _unpacked(archive: bytes) -> dict[str, bytes]:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            return {member.name: opened.extractfile(member).read() for member in opened if member.isreg()}  # type: ignore[union-attr]
    except (tarfile.TarError, EOFError, ValueError):
        raise TrainerRefused("trainer_output_invalid") from None
