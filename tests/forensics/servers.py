"""PostgreSQL and Redis in their most revealing configuration: everything is logged and kept."""

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.exceptions import RedisError

from tests.faults import processes
from tests.postgres.server import Server

_TALKATIVE = (
    "full_page_writes=on",
    "wal_compression=pglz",
    "wal_level=logical",
    "min_wal_size=256MB",  # so that segments are reused late
    "max_wal_size=1GB",
    "log_statement=all",
    "log_min_duration_statement=0",
    "log_parameter_max_length=-1",
    "log_parameter_max_length_on_error=-1",
    "log_min_messages=debug1",
    "track_activity_query_size=64kB",
    "autovacuum_naptime=1s",
    "autovacuum_analyze_threshold=1",  # samples of the columns, for the planner
)


class Postgres(Server):
    """PostgreSQL server that logs every statement with its parameters, and whole pages to its write-ahead log."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._settings = (*_TALKATIVE, *settings)
        super().__init__(folder)

    def start(self) -> None:
        local = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=32MB")
        options = [part for setting in (*local, *self._settings) for part in ("-c", setting)]
        self._process = self._run("postgres", "-p", str(self.port), *options)
        ends = time.monotonic() + 120
        while not self.answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < ends, self.log()
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid


@contextlib.contextmanager
def postgres(*settings: str) -> Iterator[Postgres]:
    """Run a separate PostgreSQL server for the duration of the block."""
    folder = Path(tempfile.mkdtemp(prefix="lethe-postgres-"))
    folder.chmod(0o755)
    try:
        server = Postgres(folder, *settings)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder)


class Redis(processes.Redis):
    """Redis that logs every change and dumps everything each second; it loads the dump when it starts."""

    def start(self) -> None:
        super().start()
        self.keep()

    def keep(self) -> None:
        with redis.Redis(port=self.port) as client:
            client.config_set("save", "1 1")
            client.config_set("appendonly", "yes")
            processes.wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])

    def dump(self) -> None:
        """Save all content to the dump file."""
        with redis.Redis(port=self.port) as client:
            while True:
                with contextlib.suppress(RedisError):  # a dump is already in progress
                    client.save()
                    return
                time.sleep(0.05)
