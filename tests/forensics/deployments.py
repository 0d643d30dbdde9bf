"""Installations that are examined: each process is started as users start it, and writes everything to one folder."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from pydantic import SecretStr

from app.config import Settings
from tests import servers as receivers
from tests.faults import processes
from tests.faults.processes import CELERY_BEAT, CELERY_WORKER, LETHE, wait_until
from tests.forensics import captured, opened, search, servers, stores
from tests.forensics.finder import Finder
from tests.forensics.search import Residue
from tests.ports import free_port
from tests.postgres.server import Server

OF_ALL = {
    "lease_seconds": "2",
    "poll_seconds": "0.1",
    "threads": "1",
    "log_level": "debug",
    "audit_checkpoint_seconds": "5",
    "webhook_allowed_networks": "127.0.0.0/8",
}


class Service:
    """A command and the processes that it starts, which may be killed and restarted."""

    def __init__(self, name: str, words: Sequence[str | Path], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self._words, self._environment, self._folder = words, environment, folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._words,
                env=self._environment,
                cwd=self._folder / "working",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """Return the service's live processes."""
        if self._process is None or self._process.poll() is not None:
            return []
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def kill(self) -> None:
        """Kill the service's process with SIGKILL, and wait until its children have ended too."""
        below = self.processes()
        if self._process:
            self._process.kill()
            self._process.wait()
        psutil.wait_procs(below[1:], timeout=10)

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


@dataclass
class Installation:
    """An installation; `folder` has all its files except PostgreSQL's."""

    folder: Path
    settings: Settings
    services: dict[str, Service]
    telemetry: receivers.Server
    postgres: Server | None = None
    redis: servers.Redis | None = None

    @property
    def gateway(self) -> Service:
        return next(iter(self.services.values()))

    @property
    def worker(self) -> psutil.Process:
        """Return the process that does runs, waiting until it exists."""

        def found() -> psutil.Process | None:
            processes = self.services.get("worker", self.gateway).processes()
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    # The first worker of `lethe up` is a fork of it.
                    is_forked = process != processes[0] and process.cmdline() == processes[0].cmdline()
                    if is_forked or {"worker", "worker.celery_app"} & set(process.cmdline()):
                        return process
            return None

        return wait_until(found)

    def runs(self) -> list[psutil.Process]:
        """Return the processes of current runs, which are children of the worker's fork server."""
        with contextlib.suppress(psutil.Error):
            return [run for server in self.worker.children() for run in server.children()]
        return []

    def kill_worker(self) -> None:
        """Kill the worker with SIGKILL in the middle of a run; it is then restarted."""
        wait_until(self.runs)
        self.worker.kill()
        if "worker" in self.services:
            self.services["worker"].kill()
            self.services["worker"].start()

    def kill_gateway(self) -> None:
        self.gateway.kill()
        self.gateway.start()
        self.ready()

    def ready(self) -> None:
        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get("/readyz").status_code == 200
            return False

        with self._caller() as client:
            wait_until(answers)

    def client(self) -> httpx.Client:
        """Return an HTTP client for the gateway that uses the admin's key."""
        key = self.settings.resolved_admin_key_file().read_text().strip()
        return self._caller(Authorization=f"Bearer {key}")

    def _caller(self, **headers: str) -> httpx.Client:
        # Without TLS no certificate is verified, and reading certificates takes 30 ms of processor time.
        url = f"http://127.0.0.1:{self.settings.port}"
        return httpx.Client(base_url=url, headers=headers, timeout=240, verify=False)

    def folders(self) -> list[Path]:
        return [self.folder, *([self.postgres.folder / name for name in ("data", "log")] if self.postgres else [])]

    def processes(self) -> list[psutil.Process]:
        own = [process for service in self.services.values() for process in service.processes()]
        pids = [*([self.redis.process.pid] if self.redis else []), *([self.postgres.pid] if self.postgres else [])]
        for pid in pids:
            server = psutil.Process(pid)
            own += [server, *server.children(recursive=True)]
        return own

    def examine(self, finder: Finder, *, live: bool = False, subject_id: str = "p2") -> Residue:
        """Search the whole installation. With `live`, this includes the memory and the open files of all processes,
        which requires root. `subject_id` belongs to another person, who may be looked up."""
        if self.redis:
            self.redis.dump()
        residue = self.examine_disks(finder) | search.texts(self._said(subject_id), finder)
        residue |= search.texts(((f"trace {call.line}", call.body) for call in self.telemetry.calls), finder)
        for process in self.processes() if live else ():
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                name = " ".join(process.cmdline()[-3:])
                found = search.memory_of(process.pid, finder) | search.held_open(process.pid, finder)
                residue |= {f"{place} ({name})": count for place, count in found.items()}
        return residue

    def examine_disks(self, finder: Finder) -> Residue:
        """Search the disks, and all content that can be decrypted with the keys on them."""
        residue: Residue = {}
        contents = search.searched(search.everything(self.folders()), finder, residue)
        sealed = search.texts(opened.everything(self.settings, contents), finder)
        return residue | sealed

    def _said(self, subject_id: str) -> Iterator[stores.Said]:
        with self.client() as client:
            yield from stores.answers(client, subject_id=subject_id)
        if self.redis:
            yield from stores.redis_keys(self.redis.port)
        if self.postgres:
            yield from stores.postgres_tables(self.settings.resolved_database_url())
        else:
            yield from stores.sqlite_tables(self.settings.data_dir / "lethe.db")

    def noted(self) -> Path:
        """Return the folder to which the probe writes its files."""
        return self.folder / "probe"


@contextlib.contextmanager
def small(folder: Path) -> Iterator[Installation]:
    """Start `lethe up` on SQLite, without a broker."""
    with _telemetry() as telemetry:
        environment, settings = _environment(folder, telemetry)
        services = {"up": Service("up", [LETHE, "up"], environment, folder)}
        with _started(Installation(folder, settings, services, telemetry)) as started:
            yield started


@contextlib.contextmanager
def production(folder: Path) -> Iterator[Installation]:
    """Start the gateway, the accounting service, the Celery worker and Celery beat, on PostgreSQL and Redis."""
    with _telemetry() as telemetry, servers.postgres() as postgres, postgres.database() as name:
        (folder / "redis").mkdir(parents=True)
        redis = servers.Redis(folder / "redis")
        try:
            redis.keep()
            environment, settings = _environment(
                folder, telemetry, database_url=postgres.url(name), broker_url=redis.url
            )
            celery = [sys.executable, "-m"]
            services = {
                "gateway": Service("gateway", [LETHE, "serve"], environment, folder),
                "accounting": Service(
                    "accounting", [LETHE, "serve-accounting"], environment | {"LETHE_PORT": str(free_port())}, folder
                ),
                "worker": Service("worker", [*celery, *CELERY_WORKER], environment, folder),
                "beat": Service("beat", [*celery, *CELERY_BEAT], environment, folder),
            }
            with _started(Installation(folder, settings, services, telemetry, postgres, redis)) as started:
                yield started
        finally:
            redis.kill()


@contextlib.contextmanager
def _started(installation: Installation) -> Iterator[Installation]:
    try:
        for service in installation.services.values():
            service.start()
            if service is installation.gateway:  # it sets up the database that the other services expect
                installation.ready()
        yield installation
    finally:
        for service in installation.services.values():
            service.kill()


def _environment(folder: Path, telemetry: receivers.Server, **further: str) -> tuple[dict[str, str], Settings]:
    """Create a deployment's folders, and return the environment of all its processes and its settings."""
    for name in ("working", "temporary", "home", "probe"):
        (folder / name).mkdir(parents=True)
    given = OF_ALL | further | {"port": str(free_port()), "otlp_endpoint": f"http://127.0.0.1:{telemetry.port}"}
    environment = processes.environment_of(folder / "data", **given) | {
        "TMPDIR": str(folder / "temporary"),
        "HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join([str(captured.FOLDER), str(Path(__file__).parents[2])]),
        "FORENSIC_PROBE": str(folder / "probe"),
    }
    own: dict[str, Any] = {name: SecretStr(further[name]) for name in ("database_url", "broker_url") if name in further}
    return environment, Settings(data_dir=folder / "data", port=int(given["port"]), **own)


@contextlib.contextmanager
def _telemetry() -> Iterator[receivers.Server]:
    """Run a collector that keeps every trace."""
    with receivers.serving(receivers.status(200)) as server:
        yield server
