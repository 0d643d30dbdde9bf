"""PgBouncer between the service and PostgreSQL: refused if it drops the timeouts, and accepted if the role sets
them."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from app.db import Database, migrate
from app.errors import DatabaseUnreadable
from tests.ports import free_port
from tests.postgres import server
from tests.postgres.server import Server

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="apt-get install pgbouncer"),
]


@contextlib.contextmanager
def pooled(behind: Server, *, ignoring: str) -> Iterator[int]:
    """Yield the port of a PgBouncer in transaction mode that ignores the start-up parameter `ignoring`."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="lethe-pooler-") as folder:
        nobody = pwd.getpwnam("nobody")
        Path(folder).chmod(0o755)
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={behind.port} user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
            f"listen_port={port}\nauth_type=any\npool_mode=transaction\nunix_socket_dir=\n"
            f"ignore_startup_parameters={ignoring}\n"
        )
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        process = subprocess.Popen(["pgbouncer", settings], stderr=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(psycopg.OperationalError):
                    psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
                    break
                assert process.poll() is None
                assert time.monotonic() < until
            yield port
        finally:
            process.kill()
            process.wait()


def test_a_pooler_that_drops_timeouts_is_refused() -> None:
    """If a pooler silently drops a connection's options, the service refuses to start and explains why. Once the role
    itself sets the timeouts, the pooler is accepted for the service. A read-only connection is still refused, because
    its role could write."""
    with server.running() as behind, behind.database() as name:
        with pooled(behind, ignoring="options") as port:
            database = Database(f"postgresql://postgres@127.0.0.1:{port}/{name}")
            with pytest.raises(DatabaseUnreadable, match=r"A pooler .* time-outs would be off"):
                migrate.check(database.engine)
            database.close()
        for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            behind.do(sql.SQL("ALTER ROLE postgres SET {} = '60s'").format(sql.Identifier(setting)))
        with pooled(behind, ignoring="options") as port:
            database = Database(f"postgresql://postgres@127.0.0.1:{port}/{name}")
            migrate.upgrade(database.engine)
            assert migrate.is_current(database.engine)
            database.close()
            reader = Database(f"postgresql://postgres@127.0.0.1:{port}/{name}", read_only=True)
            with pytest.raises(DatabaseUnreadable, match="A pooler"):
                migrate.check(reader.engine)
            reader.close()
