"""The command `lethe up`: a gateway and its workers, started by a single command, on SQLite and without a broker.

A lock permits only one such process per data folder. Workers are child processes that die with it and are restarted if
they die.
"""

import asyncio
import contextlib
import ctypes
import datetime
import fcntl
import functools
import gc
import importlib
import multiprocessing
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import FrameType

import httpx
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app import errors, folders, hardening, installations, main, telemetry
from app.config import Settings
from app.operations import periodic_jobs
from app.unlearning import service as unlearning
from lethe.hardening import harden

_MAX_PAUSE_SECONDS = 15.0
_MAX_PIPELINED = 16
_BUSY_TICKS, _IDLE_TICKS = 10, 4
"""Maximum number of successive ticks without cleaning: while requests arrive, and if none came since a cleaning."""
_DESCRIPTORS = 4096


def up(settings: Settings, *, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` receives the address. Raises `AlreadyRunning`, `AddressInUse`."""
    telemetry.configure(settings.log_level)
    folders.make(settings.data_dir)
    with _locked(settings.data_dir), _listening(settings) as listener, contextlib.ExitStack() as pipes:
        # Pages of objects that are never collected stay shared with the forked workers.
        gc.freeze()
        workers = [Worker(settings, number=number, pipes=pipes) for number in range(1, settings.workers + 1)]
        installations.set_up(settings)
        with installations.opened(settings) as installation:
            periodic_jobs.sweep_rows(installation, unclaimed_for=datetime.timedelta(0))
            for worker in workers:
                worker.start(installation)
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
    """Serve one application, by default the gateway, until SIGTERM or SIGINT. Raises `AddressInUse`."""
    config = uvicorn.Config(
        create(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        # uvloop retains the last 256 kB that it received.
        loop="asyncio",
        http=_Protocol,
        ws="none",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=[str(network) for network in settings.proxy_networks()],
        timeout_notify=0,
        timeout_graceful_shutdown=10,
    )
    _raise_descriptor_limit()
    # Collecting what exists before any personal data would take long and free little.
    gc.freeze()
    server = _Server(config, on_ready)
    config.callback_notify = _Forgetting(server)

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal again after its shutdown, which must not kill this process.
        signal.signal(number, stop)
    with contextlib.nullcontext(listener) if listener else _listening(settings) as listening:
        # Accepted connections inherit the option, which asyncio does not set.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Server that ticks once per second instead of ten times, and never garbage-collects objects created at startup."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._stop: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stopping, self._stop = stopping, lambda: loop.call_soon_threadsafe(stopping.set)
        await super().startup(sockets)
        # The framework analyses all routes at the first call.
        transport = httpx.ASGITransport(self.config.loaded_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.get("/healthz")
        gc.collect()
        gc.freeze()
        gc.enable()
        if self.started:
            # What it prints may block, or fail, without consequence.
            threading.Thread(target=self._on_ready, daemon=True).start()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._stopping.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._stop()


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 protocol that closes a connection on which more than `_MAX_PIPELINED` calls are queued."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if len(self.pipeline) > _MAX_PIPELINED:
            self.pipeline.clear()
            self.transport.close()


def _raise_descriptor_limit() -> None:
    """Raise the descriptor limit to the number of connections that calls in progress and slow clients may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Forgetting:
    """Callback that garbage-collects and overwrites what the last request left in memory. It is called every second and
    does its work on the first call without a new request. While requests arrive, up to ten calls in a row are skipped,
    because a busy event loop collects anyway and callers would wait. Without requests, it does its work every five
    seconds, because of background jobs."""

    def __init__(self, server: uvicorn.Server) -> None:
        self._state = server.server_state
        self._seen = self._cleaned = 0
        self._put_off = 0

    async def __call__(self) -> None:
        total = self._state.total_requests
        is_busy, self._seen = total != self._seen, total
        ticks = _BUSY_TICKS if is_busy else _IDLE_TICKS if self._cleaned == total else 0
        if self._put_off < ticks:
            self._put_off += 1
            return
        self._put_off, self._cleaned = 0, total
        hardening.forget()


class _Forked(ForkProcess):
    """Child process that is no new program, and that is waited for like one."""

    def wait(self) -> int | None:
        self.join()
        return self.exitcode


class Worker:
    """Child process that performs runs and is restarted when it dies. Worker number 2 claims only runs that carry out
    deletions, so that deletions need not wait while a model is being trained.

    The first child is forked at once, before this process opens or starts anything, and waits for `start`. It need not
    repeat the imports. Later children are new programs, because by then this process has served callers. A child that
    is never started exits when `pipes` is closed, even if it ignores signals."""

    def __init__(self, settings: Settings, *, number: int, pipes: contextlib.ExitStack) -> None:
        # Unique, because the supervisor takes back all runs claimed under this name.
        suffix = "" if number == 1 else f"-{number}"
        self.name = f"embedded{suffix}@{socket.gethostname()}"
        self._arguments = [self.name, *(["--deletions-only"] if number == 2 else [])]
        self._settings = settings
        self._stopping = threading.Event()
        waiting, self._started = os.pipe()
        pipes.callback(os.close, self._started)
        self._child: _Forked | subprocess.Popen[bytes] = _Forked(
            target=self._be_the_first, args=(waiting, os.getpid()), daemon=True
        )
        self._child.start()
        os.close(waiting)
        # The parent-death signal is bound to the forking thread; this thread lives as long as the process.
        self._thread = threading.Thread(target=self._watch, name="worker-watch", daemon=True)

    def start(self, installation: installations.Installation) -> None:
        self._installation = installation
        self._thread.start()

    def stop(self) -> None:
        """Ask the child to finish its run and exit."""
        self._stopping.set()
        self._child.terminate()

    def join(self) -> None:
        """Wait until the child has exited."""
        self._thread.join()

    def _be_the_first(self, waiting: int, parent: int) -> None:
        """Be the worker, in the forked child. Nothing that its parent has opened stays open here."""
        _die_with_parent(parent)
        # A daemon may not have children, and a worker has some.
        multiprocessing.current_process().daemon = False
        harden()
        os.dup2(waiting, 0)
        os.closerange(3, _DESCRIPTORS)
        sys.stdin = os.fdopen(0, closefd=False)
        try:
            importlib.import_module("worker.embedded")
            if os.read(0, 1):
                os.environ.update(_environment(self._settings))
                sys.argv[1:] = self._arguments
                runpy.run_module("worker", run_name="__main__")
        # The hook logs less than `multiprocessing` would.
        except Exception:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
            sys.exit(1)

    def _watch(self) -> None:
        pause = 0.25
        self._take_back()
        # The child may have died while it waited.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._started, b"!")
        while True:
            started = time.monotonic()
            status = self._child.wait()
            self._take_back()
            if self._stopping.is_set():
                break
            pause = 0.25 if time.monotonic() - started > 10 else min(pause * 2, _MAX_PAUSE_SECONDS)
            telemetry.logger().warning("worker.died", worker=self.name, status=status, again_in_seconds=pause)
            if self._stopping.wait(pause):
                break
            # Again, since the database may have been away when the child died.
            self._take_back()
            self._child = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "worker", *self._arguments],
                env=_environment(self._settings),
                preexec_fn=functools.partial(_die_with_parent, os.getpid()),
            )
            if self._stopping.is_set():
                self._child.terminate()

    def _take_back(self) -> None:
        """Release the dead child's runs immediately, without waiting for their leases to expire."""
        try:
            with self._installation.database.writing() as session:
                unlearning.take_back(session, worker=self.name)
        # The lease then expires on its own.
        except Exception as error:  # noqa: BLE001
            telemetry.logger().error("worker.runs_not_taken_back", error=type(error).__name__)


def _environment(settings: Settings) -> dict[str, str]:
    """Return the child's environment, with this process's settings from every source."""
    variables = {f"LETHE_{name.upper()}": value for name, value in settings.model_dump(mode="json").items()}
    # model_dump masks secrets.
    for name in ("database_url", "broker_url"):
        if secret := getattr(settings, name):
            variables[f"LETHE_{name.upper()}"] = secret.get_secret_value()
    return os.environ | {name: str(value) for name, value in variables.items() if value is not None}


def _die_with_parent(parent: int) -> None:
    """Make Linux kill the child when its parent dies. This runs in the child before anything else."""
    # Ctrl-C is for the supervisor, which then stops the child.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        # The parent died before prctl took effect.
        if os.getppid() != parent:
            os._exit(1)


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    descriptor = os.open(data_dir / "lethe.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.AlreadyRunning(f"Another lethe serves {data_dir}; stop it or set LETHE_DATA_DIR.") from error
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
            raise errors.AddressInUse(
                f"Cannot listen on {where} ({error.strerror}); set LETHE_PORT or LETHE_HOST."
            ) from error
        yield listener
