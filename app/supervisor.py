"""`lethe up`: gateway and worker as one command, on SQLite and without a broker.

One process per data folder (a lock says so); the workers are children that die with it and are started again when they
die.
"""

import contextlib
import ctypes
import datetime
import fcntl
import functools
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from app import folders, hardening, installations, main, telemetry
from app.api import connections
from app.config import Settings
from app.errors import AddressInUse, AlreadyRunning
from app.installations import Installation
from app.operations import periodic_jobs
from app.unlearning import service as unlearning

_LONGEST_PAUSE = 15.0
_MOST_PUT_OFF = 10


def up(settings: Settings, *, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` is told the address. Raises `AlreadyRunning`, `AddressInUse`."""
    telemetry.configure(settings.log_level)
    folders.make(settings.data_dir)
    with _locked(settings.data_dir), _listening(settings) as listener:
        installations.set_up(settings)
        with installations.opened(settings) as installation:
            periodic_jobs.sweep_rows(installation, unclaimed_for=datetime.timedelta(0))
            workers = [Worker(settings, installation, number=number) for number in range(1, settings.workers + 1)]
            for worker in workers:
                worker.start()
            try:
                host, port = listener.getsockname()[:2]
                address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
                serve(settings, listener=listener, on_ready=lambda: on_ready(address))
            finally:
                for worker in workers:
                    worker.stop()
                for worker in workers:
                    worker.join()


def serve(
    settings: Settings,
    *,
    listener: socket.socket | None,
    on_ready: Callable[[], None],
    create: Callable[[Settings], FastAPI] = main.create_app,
) -> None:
    """One application alone (the gateway), until SIGTERM or SIGINT. Raises `AddressInUse`."""
    config = uvicorn.Config(
        create(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        loop="asyncio",  # uvloop keeps the last 256 kB that it has received
        http=connections.protocol(),
        ws="none",
        timeout_notify=1,
        timeout_graceful_shutdown=10,
    )
    connections.allow_many()
    server = uvicorn.Server(config)
    config.callback_notify = _Forgetting(server)
    ready = threading.Thread(target=_when_started, args=(server, on_ready), daemon=True)
    ready.start()

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)  # uvicorn raises the signal that ended it once more: that must not kill us
    with contextlib.nullcontext(listener) if listener else _listening(settings) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for what it accepts: asyncio leaves it out
        gc.freeze()
        server.run(sockets=[listening])


class _Forgetting:
    """Every second: an event loop that idles would neither collect nor overwrite what the last request left.

    One that is busy does both by itself as it goes, and callers would wait for it: it is put off, ten times in a row at
    most.
    """

    def __init__(self, server: uvicorn.Server) -> None:
        self._state = server.server_state
        self._answered = 0
        self._put_off = 0

    async def __call__(self) -> None:
        is_busy = self._state.total_requests != self._answered
        self._answered = self._state.total_requests
        if is_busy and self._put_off < _MOST_PUT_OFF:
            self._put_off += 1
            return
        self._put_off = 0
        hardening.forget()


class Worker:
    """A child process that does runs: started, watched, started again, stopped. The second one (`number`) takes no run
    that honours no deletion, so that nobody waits for a model that learns."""

    def __init__(self, settings: Settings, installation: Installation, *, number: int = 1) -> None:
        which = "" if number == 1 else f"-{number}"
        self.name = f"embedded{which}@{socket.gethostname()}"  # no other process claims runs under it
        self._arguments = [self.name, *(["--deletions-only"] if number == 2 else [])]
        self._settings = settings
        self._installation = installation
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        # A child's parent-death signal follows the thread that forked it: this one lives as long as the process.
        self._thread = threading.Thread(target=self._watch, name="worker-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the child finish its run, then end."""
        self._stopping.set()
        if self._child and self._child.poll() is None:
            self._child.terminate()

    def join(self) -> None:
        """Wait until it has."""
        self._thread.join()

    def _watch(self) -> None:
        pause = 0.25
        while not self._stopping.is_set():
            self._take_back()
            started = time.monotonic()
            self._child = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-m", "worker", *self._arguments],
                env=_environment(self._settings),
                preexec_fn=functools.partial(_die_with_parent, os.getpid()),
            )
            if self._stopping.is_set():
                self._child.terminate()
            status = self._child.wait()
            if self._stopping.is_set():
                break
            pause = 0.25 if time.monotonic() - started > 10 else min(pause * 2, _LONGEST_PAUSE)
            telemetry.logger().warning("worker.died", worker=self.name, status=status, again_in_seconds=pause)
            self._take_back()
            self._stopping.wait(pause)
        self._take_back()

    def _take_back(self) -> None:
        """The child is dead: what it held is handed back at once, not when its lease is over."""
        try:
            with self._installation.database.writing() as session:
                unlearning.take_back(session, worker=self.name)
        except Exception as error:  # noqa: BLE001  then the lease will end by itself
            telemetry.logger().error("worker.runs_not_taken_back", error=type(error).__name__)


def _environment(settings: Settings) -> dict[str, str]:
    """The child's settings are this process's settings, however they were given."""
    given = {f"LETHE_{name.upper()}": value for name, value in settings.model_dump(mode="json").items()}
    for name in ("database_url", "broker_url"):  # a dump masks what is secret
        if secret := getattr(settings, name):
            given[f"LETHE_{name.upper()}"] = secret.get_secret_value()
    return os.environ | {name: str(value) for name, value in given.items() if value is not None}


def _die_with_parent(parent: int) -> None:
    """Runs in the child before it becomes the worker: on Linux it is killed when this process dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which then ends the child
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked for
            os._exit(1)


def _when_started(server: uvicorn.Server, on_ready: Callable[[], None]) -> None:
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.02)
    on_ready()


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    descriptor = os.open(data_dir / "lethe.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"Another lethe serves {data_dir}; stop it or set LETHE_DATA_DIR.") from error
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise AddressInUse(f"Cannot listen on {where} ({error.strerror}); set LETHE_PORT or LETHE_HOST.") from error
        yield listener
