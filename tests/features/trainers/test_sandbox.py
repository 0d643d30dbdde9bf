"""The sandbox of trainers: what a command may do in it, and the name of each refusal."""

import os
from pathlib import Path

import pytest

from app.features.trainers import sandbox
from app.features.trainers.sandbox import SandboxLimits, TrainerRefused

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the sandbox is for Linux")
LIMITS = SandboxLimits(seconds=60, memory_bytes=256 * 2**20, processes=8, output_bytes=2**20)


def run(source: str, *, limits: SandboxLimits = LIMITS) -> dict[str, bytes]:
    """Run Python source in the sandbox, and return its output."""
    command, files = ["python", "-I", "-S", "a.py"], {"a.py": source.encode(), "rows.arrow": b"rows"}
    return sandbox.run(
        command, files=files, environment={"SEED": "7"}, limits=limits, folders=["artefacts"], outputs=["artefacts/a"]
    )


def test_command_reads_its_files_and_returns_declared_outputs() -> None:
    """A command can read its files and environment variables and write to its folder. Undeclared files that it writes
    are not returned."""
    source = """
import os
open("b", "w").write("x")
open("artefacts/a", "w").write(open("rows.arrow").read() + os.environ["SEED"])
"""
    assert run(source) == {"artefacts/a": b"rows7"}


def test_command_sees_nothing_of_the_host(tmp_path: Path) -> None:
    """A command sees no files, processes or environment variables of the host, has no network interface except its own
    loopback, and does not run as root."""
    (tmp_path / "secret").write_text("secret")
    os.environ["LETHE_TEST_SECRET"] = "secret"
    source = f"""
import os, sys
seen = [os.path.exists({str(tmp_path)!r}), "LETHE_TEST_SECRET" in os.environ, os.getuid() == 0,
        len([name for name in os.listdir("/proc") if name.isdigit()]) > 4,
        len(open("/proc/net/dev").read().splitlines()) > 3]
open("artefacts/a", "w").write(repr(seen))
"""
    try:
        assert run(source) == {"artefacts/a": repr([False] * 5).encode()}
    finally:
        del os.environ["LETHE_TEST_SECRET"]


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("trainer_opened_socket", "import socket; socket.socket()"),
        ("trainer_opened_socket", "import socket; socket.create_connection(('127.0.0.1', 80))"),
        ("trainer_wrote_outside", "open('/tmp/rows', 'w')"),
        ("trainer_wrote_outside", "open('/usr/rows', 'w')"),
        ("trainer_wrote_outside", "open('/dev/shm/rows', 'w')"),
        ("trainer_failed", "raise SystemExit(3)"),
        ("trainer_failed", "import os; os.kill(os.getpid(), 9)"),
        ("trainer_output_invalid", "pass"),
        ("trainer_output_invalid", "import os; os.symlink('/etc/passwd', 'artefacts/a')"),
        ("trainer_output_invalid", "import os; os.mkdir('artefacts/a')"),
        ("trainer_output_too_large", "open('artefacts/a', 'wb').write(bytes(2 ** 21))"),
        ("trainer_memory_exceeded", "rows = [b'x' * 2 ** 20 for _ in range(2000)]\nwhile True: pass"),
        ("trainer_processes_exceeded", "import os\nfor _ in range(20):\n    os.fork() or exec('while True: pass')"),
    ],
)
def test_forbidden_command_is_refused_with_its_reason(code: str, source: str) -> None:
    """A command that opens a socket, writes outside its folder, fails, produces outputs other than those declared, or
    exceeds a limit is refused with a specific error code."""
    with pytest.raises(TrainerRefused) as refused:
        run(source)
    assert refused.value.code == code


def test_command_that_takes_too_long_is_killed() -> None:
    """A command is killed when its time limit has elapsed."""
    with pytest.raises(TrainerRefused) as refused:
        run("while True: pass", limits=SandboxLimits(seconds=0.3, memory_bytes=2**28, processes=8, output_bytes=2**20))
    assert refused.value.code == "trainer_time_exceeded"


def test_machine_without_a_sandbox_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without bubblewrap, every trainer is refused."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TrainerRefused) as refused:
        run("pass")
    assert refused.value.code == "trainer_sandbox_missing"
