"""The sandbox of a process that reads a foreign file: what code in it cannot do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lethe.features.isolation import sandbox

ATTACKS = """
import ctypes, errno, json, mmap, os, resource, signal, socket, sys, threading
from lethe.features.isolation import sandbox

folder, victim = sys.argv[1], int(sys.argv[2])
database, tombstones, key = (os.path.join(folder, name) for name in ("database", "tombstones", "key"))
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))


def below(name, *arguments):
    # Numbers from 424 on are those of every architecture.
    function = getattr(libc, name) if isinstance(name, str) else lambda *rest: libc.syscall(name, *rest)

    def call():
        if function(*arguments) == -1:
            raise OSError(ctypes.get_errno(), "refused")

    return call


def forked():
    if os.fork() == 0:
        os.setsid()
        os._exit(0)


attacks = {
    "cut the database": lambda: os.truncate(database, 0),
    "write to the database": lambda: os.open(database, os.O_WRONLY),
    "append to the tombstones": lambda: os.open(tombstones, os.O_WRONLY | os.O_APPEND),
    "remove the tombstones": lambda: os.unlink(tombstones),
    "rename the tombstones": lambda: os.rename(tombstones, tombstones + "2"),
    "read the key": lambda: os.open(key, os.O_RDONLY),
    "open the key by a handle": lambda: os.open(key, os.O_PATH),
    "map the key": below(437, -100, key.encode(), None, 0),
    "share the key": lambda: os.chmod(key, 0o777),
    "give the key away": lambda: os.chown(key, 1, 1),
    "date the key": lambda: os.utime(key, (0, 0)),
    "label the key": lambda: os.setxattr(key, "user.a", b"a"),
    "look at the key": lambda: os.stat(key),
    "link the key": lambda: os.link(key, key + "2"),
    "link to the key": lambda: os.symlink(key, key + "3"),
    "make a folder": lambda: os.mkdir(key + "4"),
    "make a pipe in the folder": lambda: os.mkfifo(key + "5"),
    "remove the folder": lambda: os.rmdir(folder),
    "list the folder": lambda: os.listdir(folder),
    "enter the folder": lambda: os.chdir(folder),
    "change the root": lambda: os.chroot(folder),
    "mount": below("mount", b"none", folder.encode(), b"tmpfs", 0, None),
    "fork": forked,
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "clone3": below(435, None, 0),
    "start a thread": lambda: threading.Thread(target=int).start(),
    "unshare": below("unshare", 0x10000000),
    "find the gateway": lambda: os.pidfd_open(victim),
    "copy its descriptors": below(438, 0, 3, 0),
    "end the gateway": lambda: os.kill(victim, signal.SIGKILL),
    "end its group": lambda: os.killpg(0, signal.SIGCONT),
    "trace the gateway": below("ptrace", 16, victim, None, None),
    "write into the gateway": below("process_vm_writev", victim, None, 0, None, 0, 0),
    "limit the gateway": lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (0, 0)),
    "slow the gateway": lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    "pin the gateway": lambda: os.sched_setaffinity(victim, {0}),
    "keep memory in a file": lambda: os.memfd_create("left"),
    "keep memory without one": below("shmget", 0, 2**26, 0o1666),
    "keep messages": below("msgget", 0, 0o1666),
    "pipe": os.pipe,
    "duplicate": lambda: os.dup(1),
    "lock": lambda: os.lockf(1, os.F_TEST, 0),
    "socket": socket.socket,
    "pair": socket.socketpair,
    "send": below("send", 1, b"a", 1, 0),
    "io_uring": below(425, 1, None),
    "raise the limits": lambda: resource.setrlimit(resource.RLIMIT_NPROC, (9, 9)),
    "become root": lambda: os.setresuid(0, 0, 0),
    "be dumped": below("prctl", 4, 1, 0, 0, 0),
    "ignore a signal": lambda: signal.signal(signal.SIGXCPU, signal.SIG_IGN),
    "set an alarm": lambda: signal.setitimer(signal.ITIMER_REAL, 9),
    "map code": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    "make code": below("mprotect", ctypes.c_void_p(address), 4096, 7),
    "execute": lambda: os.execv("/bin/true", ["true"]),
}
sandbox.enter(memory_bytes=2**33)
outcomes = {}
for name, attack in attacks.items():
    try:
        attack()
        outcomes[name] = "done"
    except OSError as error:
        outcomes[name] = errno.errorcode[error.errno]
    # Threads and limits that the kernel refuses.
    except (RuntimeError, ValueError):
        outcomes[name] = "EPERM"
try:
    bytearray(2**34)
except MemoryError:
    outcomes["take memory"] = "EPERM"
os.write(1, json.dumps(outcomes).encode())
"""


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, start_new_session=True
    )


def test_the_sandbox_refuses_every_escape(tmp_path: Path) -> None:
    """Code in the sandbox cannot access a world-writable file or another process, and cannot leave a file behind. The
    kernel refuses each attempt, and files and processes remain unchanged."""
    tmp_path.chmod(0o777)
    names = ("database", "tombstones", "key")
    for name in names:
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o666)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as gateway:
        done = run(ATTACKS, str(tmp_path), str(gateway.pid))
        assert gateway.poll() is None
        gateway.communicate(b"\n")
    assert done.stdout, done.stderr
    outcomes = json.loads(done.stdout)
    assert len(outcomes) == 55
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "EPERM"} == {}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: name for name in names}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o666}


def test_landlock_forbids_files_by_itself(tmp_path: Path) -> None:
    """Even before the system-call filter is installed, Landlock prevents a process from opening, creating or removing
    files."""
    (tmp_path / "key").write_text("key")
    program = """
import ctypes, os, sys
from lethe.features.isolation import sandbox
key = os.path.join(sys.argv[1], "key")
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
if not sandbox._close_files(libc):
    sys.exit("no Landlock")
for attempt in (lambda: open(key), lambda: os.unlink(key), lambda: os.mkdir(key + "2"), lambda: os.listdir("/")):
    try:
        attempt()
    except PermissionError:
        print("refused")
"""
    done = run(program, str(tmp_path))
    if "no Landlock" in done.stderr:
        pytest.skip("the kernel has no Landlock")
    assert done.stdout == "refused\n" * 4, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_root_becomes_nobody() -> None:
    """A process that root starts in the sandbox runs as user and group `nobody`, with no other groups and no
    capabilities."""
    program = """
import os
from pathlib import Path
from lethe.features.isolation import sandbox
sandbox.drop_root()
lines = Path("/proc/self/status").read_text().splitlines()
capabilities = [line for line in lines if line.startswith(("CapEff", "CapPrm"))]
print(os.getresuid(), os.getresgid(), os.getgroups(), *capabilities)
"""
    nobody = (sandbox.NOBODY,) * 3
    none = "0" * 16
    assert run(program).stdout == f"{nobody} {nobody} [] CapPrm:\t{none} CapEff:\t{none}\n"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=[9], daemon=True).start()", "one thread"),
        ("import platform; platform.machine = lambda: 'riscv64'", "for Linux on x86-64"),
        pytest.param(
            "import ctypes; assert not ctypes.CDLL(None).unshare(0x10000000)\n"
            "open('/proc/self/uid_map', 'w').write('0 0 1')",
            "root cannot become another user",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root makes a namespace of root alone everywhere"),
        ),
    ],
)
def test_an_impossible_sandbox_raises(before: str, why: str) -> None:
    """`enter` raises an error if another thread of the process would remain outside the sandbox, if the processor
    architecture is not supported, or if root privileges cannot be dropped."""
    program = f"""
{before}
from lethe.features.isolation import sandbox
sandbox.enter(memory_bytes=2**33)
print("went on")
"""
    done = run(program)
    assert "NotSandboxed" in done.stderr
    assert why in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_processor_time_is_limited(tmp_path: Path) -> None:
    """The kernel kills a process that exceeds its CPU time limit."""
    program = (
        "from lethe.features.isolation import sandbox; sandbox.enter(memory_bytes=2**33, cpu_seconds=1)\nwhile 1: 0"
    )
    assert run(program).returncode == -9
