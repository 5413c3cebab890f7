# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL of the tests: what a kill keeps, TLS, and no process that outlives its test."""

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from child_processes import is_running
from postgres_server import PostgresServer

SUPPORT = Path(__file__).resolve().parents[1] / "support"


@pytest.mark.usefixtures("postgres_server")  # skips where PostgreSQL is not installed
def test_rows_survive_a_kill_of_all_processes() -> None:
    with PostgresServer(settings={"max_wal_senders": "3"}) as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE notes (id int)")
            connection.execute("INSERT INTO notes VALUES (1)")
            settings = connection.execute(
                "SELECT current_setting('wal_level'), current_setting('max_wal_senders')"
            ).fetchone()
        assert settings == ("logical", "3")
        server.kill()
        assert not server.is_up
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        server.restart()
        with server.connect() as connection:
            assert connection.execute("SELECT id FROM notes").fetchall() == [(1,)]
        folder = server.folder
    assert not folder.exists()


@pytest.mark.usefixtures("postgres_server")
def test_a_server_can_require_tls() -> None:
    with PostgresServer(tls="required") as server:
        root = str(server.certificate.root)
        server.connect(sslmode="verify-full", sslrootcert=root).close()
        with pytest.raises(psycopg.OperationalError, match="no encryption"):
            server.connect(sslmode="disable")


@pytest.mark.usefixtures("postgres_server")
def test_a_server_ends_with_the_process_that_started_it() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from postgres_server import PostgresServer\n"
        "server = PostgresServer(); server.start()\n"
        "print(server._process.pid, server.folder, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pid, folder = owner.stdout.readline().decode().split()
    assert is_running(int(pid))
    owner.kill()
    owner.communicate()
    deadline = time.monotonic() + 20
    while is_running(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(pid))
    subprocess.run(["rm", "-rf", folder], check=True)
