"""An installation of a benchmark's own: on SQLite, or on a PostgreSQL server that syncs every commit."""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from pydantic import SecretStr

from app import installations, supervisor
from app.config import Settings
from tests.postgres.server import Server


class DurableServer(Server):
    """PostgreSQL as it comes: every commit is synced."""

    def start(self) -> None:
        local = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=512MB")
        options = [part for setting in local for part in ("-c", setting)]
        self._process = self._run("postgres", "-p", str(self.port), *options)
        while not self.answers():
            time.sleep(0.05)


@contextlib.contextmanager
def installed(kind: str) -> Iterator[Settings]:
    """A set-up installation on a database of its own, which is gone afterwards."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="lethe-bench-"))
        stack.callback(shutil.rmtree, folder)
        folder.chmod(0o755)
        settings = Settings(data_dir=folder / "data", port=free_port())
        if kind == "postgresql":
            (folder / "server").mkdir(mode=0o755)
            server = DurableServer(folder / "server")
            stack.callback(server.stop)
            settings = settings.model_copy(update={"database_url": SecretStr(server.url("postgres"))})
        installations.set_up(settings)
        yield settings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def served(settings: Settings, *command: str) -> Iterator[tuple[str, int]]:
    """The address and the id of a process that serves; `lethe serve` unless another command is given."""
    environment = supervisor._environment(settings)
    process = subprocess.Popen(
        command or [Path(sys.executable).with_name("lethe"), "serve"], env=environment, stdout=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{settings.port}"
    try:
        while not _answers(address):
            assert process.poll() is None, "the gateway ended before it served"
            time.sleep(0.05)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{address}/healthz").is_success
    return False


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
