# SPDX-License-Identifier: Apache-2.0
"""Commits that are in the log of a server and not visible yet, for as long as a test needs.

They wait for a synchronous replica that does not exist.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from mariadb_server import MariadbServer
from postgres_server import PostgresServer

WAIT_S = 60


@contextlib.contextmanager
def postgres_commit(server: PostgresServer, database: str, statement: str) -> Iterator[None]:
    """Execute a statement whose commit hangs until the end.

    Other sessions hang, too, unless their ``synchronous_commit`` is ``local``.
    """

    def execute() -> None:
        options = "-c synchronous_commit=on"
        with server.connect(database, application_name="hanging", options=options) as connection:
            connection.execute(statement.encode())

    def hangs() -> bool:
        query = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND wait_event = %s"
        with server.connect(database) as connection:
            return connection.execute(query, ["hanging", "SyncRep"]).fetchone() is not None

    server.set("synchronous_standby_names", "nobody")
    with _hanging(execute, hangs, lambda: server.set("synchronous_standby_names", None)):
        yield


@contextlib.contextmanager
def mariadb_commit(server: MariadbServer, database: str, statement: str) -> Iterator[None]:
    """Execute a statement whose commit hangs between the log and its engine until the end."""

    def hangs() -> bool:
        rows = server.run("SELECT state FROM information_schema.processlist")
        return any("semi-sync ACK" in str(state) for (state,) in rows)

    server.run(
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
        "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )
    with _hanging(
        lambda: server.run(statement, database=database),
        hangs,
        lambda: server.run("SET GLOBAL rpl_semi_sync_master_enabled = OFF"),
    ):
        yield


@contextlib.contextmanager
def _hanging(
    execute: Callable[[], object], hangs: Callable[[], bool], release: Callable[[], object]
) -> Iterator[None]:
    thread = threading.Thread(target=execute)
    thread.start()
    deadline = time.monotonic() + WAIT_S
    try:
        while not hangs():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield
        assert hangs()
    finally:
        release()
        thread.join(WAIT_S)
    assert not thread.is_alive()
