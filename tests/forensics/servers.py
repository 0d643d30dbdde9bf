"""PostgreSQL and Redis in their most revealing configuration: everything is logged and kept."""

import contextlib
import signal
import time
from collections.abc import Iterator

import redis
from redis.exceptions import RedisError

from tests.faults import processes
from tests.postgres.server import Server, new_folder

_TALKATIVE = (
    "fsync=off",
    "shared_buffers=32MB",
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


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """Run a separate PostgreSQL server that logs every statement with its parameters, and whole pages to its
    write-ahead log. Its folder contains all its files."""
    with new_folder() as folder:
        server = Server(folder, settings=_TALKATIVE)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


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
