"""A deployment as in production, of real processes on the loopback, any of which may be killed at any moment.

It has two gateways, the accounting service, three Celery workers, beat, Redis and PostgreSQL."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import kombu
import psutil
import redis
from pydantic import SecretStr

from app import installations
from app.config import Settings
from tests.faults import hops, processes
from tests.faults.processes import CELERY_BEAT, CELERY_WORKER, Child, Redis, wait_until
from tests.ports import free_port
from tests.postgres.server import Server


class Service:
    """A command that is restarted when it has ended, as a supervisor does."""

    def __init__(self, name: str, settings: Settings, *words: str, folder: Path) -> None:
        self.name = name
        self.port = settings.port
        self._settings = settings
        self._words = words
        self._log = folder / f"{name}.log"
        self._stack = contextlib.ExitStack()
        self._began = 0
        self.child: Child
        self.sessions: list[int] = []
        """Sessions of all processes so far: a process that another starts is in the same session."""

    def start(self, *, hop: str | None = None, act: hops.Act = hops.die) -> None:
        """Start the service. If it is a Celery worker, it applies `act` to itself when it first reaches `hop`."""
        self._began = len(self.log()) if self._log.exists() else 0
        started = processes.command(self._settings, *self._words, log=self._log, hop=hop, act=act)
        self.child = self._stack.enter_context(started)
        assert self.child.process.pid
        self.sessions.append(self.child.process.pid)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._stack.close()

    def restart_if_ended(self) -> str | None:
        """Restart the service if it has ended, and return what it logged since its last start. Return None if it is
        still running."""
        if self.child.process.is_alive():
            return None
        self.kill()
        said = self.log()[self._began :]
        self.start()
        return said

    def ready(self) -> None:
        """Wait until a Celery worker is waiting for a message from the broker."""
        broker_url = self._settings.broker_url
        assert broker_url
        url = broker_url.get_secret_value()
        if url.startswith("amqp:"):
            with kombu.Connection(url) as connection:
                wait_until(lambda: _consumers(connection))
            return
        with redis.Redis.from_url(url) as client:
            wait_until(lambda: self._ports() & {_port(one) for one in client.client_list() if "b" in one["flags"]})

    def _ports(self) -> set[int]:
        """Return the local ports of the service's connections."""
        return {one.laddr.port for one in self.process().net_connections() if one.raddr}

    def process(self) -> psutil.Process:
        """Return the service's latest process."""
        return psutil.Process(self.sessions[-1])

    def log(self) -> str:
        return self._log.read_text()

    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False


def _consumers(connection: kombu.Connection) -> int:
    """Return the number of workers that are waiting for messages; 0 before the first of them has declared the queue,
    when RabbitMQ closes the channel."""
    channel = connection.channel()
    try:
        return int(channel.queue_declare("celery", passive=True).consumer_count)
    except connection.channel_errors:
        return 0
    finally:
        channel.close()


def _port(client: dict[str, str]) -> int:
    """Return the local port of a Redis client."""
    return int(client["addr"].rpartition(":")[2])


def celery_worker(name: str, settings: Settings, *, folder: Path) -> Service:
    return Service(name, settings, *CELERY_WORKER, "--hostname", f"{name}@here", folder=folder)


def celery_beat(settings: Settings, *, folder: Path) -> Service:
    """Return Celery beat, which wakes the workers periodically."""
    return Service("beat", settings, *CELERY_BEAT, folder=folder)


class Deployment:
    """The whole deployment. `settings` are its workers'."""

    def __init__(self, settings: Settings, database: Server, broker: Redis, folder: Path) -> None:
        self.settings = settings
        self.database = database
        self.broker = broker

        def serving(name: str, word: str) -> Service:
            return Service(name, settings.model_copy(update={"port": free_port()}), "lethe", word, folder=folder)

        self.gateways = [serving(f"gateway{number}", "serve") for number in range(2)]
        self.accounting = serving("accounting", "serve-accounting")
        self.workers = [celery_worker(f"worker{number}", settings, folder=folder) for number in range(3)]
        self.beat = celery_beat(settings, folder=folder)
        self.services = [*self.gateways, self.accounting, *self.workers, self.beat]

    def runs(self) -> list[psutil.Process]:
        """Return the processes of all current runs."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(psutil.Error):
                found += [run for server in worker.process().children() for run in server.children()]
        return found

    def zombies(self) -> list[psutil.Process]:
        """Return dead processes that no parent has reaped."""
        below = [child for service in self.services for child in service.process().children(recursive=True)]
        return [process for process in below if _status(process) == psutil.STATUS_ZOMBIE]

    def left(self) -> list[psutil.Process]:
        """Return the processes started by any service that are still running."""
        sessions = {session for service in self.services for session in service.sessions}
        return [
            process
            for process in psutil.process_iter()
            if _session(process) in sessions and _status(process) not in (psutil.STATUS_ZOMBIE, None)
        ]


@contextlib.contextmanager
def deployed(settings: Settings, database: Server, folder: Path) -> Iterator[Deployment]:
    """Start the whole deployment, and kill it when the block ends; `settings` name the database, which is still
    empty."""
    broker = Redis(folder)
    settings = settings.model_copy(update={"broker_url": SecretStr(broker.url)})
    installations.set_up(settings)
    whole = Deployment(settings, database, broker, folder)
    try:
        for service in whole.services:
            service.start()
        for service in (*whole.gateways, whole.accounting):
            wait_until(service.listens)
        yield whole
    finally:
        for service in whole.services:
            service.kill()
        broker.kill()


def _session(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(process.pid)
    return None


def _status(process: psutil.Process) -> str | None:
    with contextlib.suppress(psutil.Error):
        return process.status()
    return None
