# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL on 127.0.0.1 in a temporary folder, for tests.

It has logical replication, password logins (SCRAM) and no fsync: ``kill -9`` of its processes loses
nothing, because the operating system keeps what they wrote.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import psycopg
from child_processes import LifeLine, as_user, descendants, kill_processes
from psycopg import sql
from tls_certificates import ServerCertificate, create_server_certificate

START_S = 60
STOP_S = 30
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "100",
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}


class NotInstalledError(Exception):
    """The programs of PostgreSQL are not installed."""


class PostgresServer:
    """A PostgreSQL server as a child process; a context manager that starts and deletes it.

    >>> with PostgresServer(settings={"max_replication_slots": "2"}) as server:  # doctest: +SKIP
    ...     with server.connect() as connection:
    ...         connection.execute("SELECT 1")

    Attributes:
        host, port, user, password, database: The login of the superuser.
        certificate: The files of TLS; ``None`` without TLS.
    """

    host = "127.0.0.1"
    user = "postgres"
    password = "secret 'of\\ the test"  # needs quotes in every language
    database = "postgres"

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        tls: Literal["off", "optional", "required"] = "off",
    ) -> None:
        """Create the server's files; :meth:`start` starts it.

        Args:
            settings: More lines of ``postgresql.conf``.
            tls: Whether the server offers TLS, or rejects connections without it.

        Raises:
            NotInstalledError: PostgreSQL is not installed.
        """
        self._programs = programs_folder()
        self.port = _free_port()
        self.certificate: ServerCertificate | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._life_line: LifeLine | None = None
        self._settings = {**SETTINGS, "port": str(self.port), **(settings or {})}
        # no folder of pytest: another user must be able to enter all of its parents
        self.folder = Path(tempfile.mkdtemp(prefix="changelane-postgres-"))
        try:
            self._initialize(tls)
        except BaseException:
            self.close()
            raise

    def _initialize(self, tls: str) -> None:
        data = self.folder / "data"
        password_file = self.folder / "password"
        password_file.write_text(self.password + "\n", "utf-8")
        _give(self.folder, password_file)
        arguments = ["-D", data, "-U", self.user, "--pwfile", password_file, "-A", "scram-sha-256"]
        arguments += ["-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        subprocess.run(
            [*as_user("postgres"), self._programs / "initdb", *arguments],
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            env=_environment(),
            check=True,
        )
        if tls != "off":
            self.certificate = create_server_certificate(self.folder)
            _give(self.certificate.key, self.certificate.certificate)
            self._settings["ssl"] = "on"
            self._settings["ssl_key_file"] = str(self.certificate.key)
            self._settings["ssl_cert_file"] = str(self.certificate.certificate)
        lines = [f"{name} = '{_escaped(value)}'\n" for name, value in self._settings.items()]
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(lines)
        kind = "hostssl" if tls == "required" else "host"
        (data / "pg_hba.conf").write_text(
            f"{kind} all all 127.0.0.1/32 scram-sha-256\n"
            f"{kind} replication all 127.0.0.1/32 scram-sha-256\n"
        )

    # -- its life

    def start(self) -> None:
        """Start the server, and wait until it accepts connections.

        Raises:
            RuntimeError: It does not start; the message has the end of its log.
        """
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*as_user("postgres"), self._programs / "postgres", "-D", self.folder / "data"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment(),
                start_new_session=True,
            )
        self._life_line = LifeLine(self._process.pid, signal.SIGQUIT)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError):
                self.connect(connect_timeout=2).close()
                return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"PostgreSQL did not start: {self.log()[-2000:]}")

    def stop(self) -> None:
        """Stop the server in good order (``fast``: connections are closed); its data stays."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget_process()

    def kill(self) -> None:
        """``kill -9`` the server and all of its processes; its data stays as it is."""
        if self._process is not None:
            kill_processes([self._process.pid, *descendants(self._process.pid)])
            self._process.wait()
        self._forget_process()

    def restart(self) -> None:
        """Start the server again on its port and data, after a stop in good order if it runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """The text of the server's log."""
        return (self.folder / "log").read_text("utf-8", "replace")

    def _forget_process(self) -> None:
        self._process = None
        if self._life_line is not None:
            self._life_line.close()
            self._life_line = None

    # -- connections and databases

    @property
    def dsn(self) -> str:
        """The connection string of the superuser, the password included."""
        return self.dsn_of(self.database)

    def dsn_of(self, database: str) -> str:
        """The connection string of the superuser for another database."""
        return psycopg.conninfo.make_conninfo(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
        )

    def login_of(self, database: str) -> dict[str, Any]:
        """The options of a PostgreSQL source that connects to a database as the superuser."""
        return {
            "host": self.host,
            "port": self.port,
            "database": database,
            "user": self.user,
            "password": self.password,
        }

    def connect(self, database: str = "", **parameters: Any) -> "psycopg.Connection[Any]":
        """Connect as the superuser, with autocommit; parameters are those of libpq."""
        parameters.setdefault("autocommit", True)
        return psycopg.connect(self.dsn_of(database or self.database), **parameters)

    def set(self, name: str, value: str | None) -> None:
        """Set a parameter at run time (``None`` resets it), as its configuration file would."""
        identifier = sql.Identifier(name)
        statement = sql.SQL("ALTER SYSTEM RESET {}").format(identifier)
        if value is not None:
            statement = sql.SQL("ALTER SYSTEM SET {} = {}").format(identifier, sql.Literal(value))
        with self.connect() as connection:
            connection.execute(statement)
            before = connection.execute("SELECT pg_conf_load_time()").fetchone()
            connection.execute("SELECT pg_reload_conf()")
            # each process reads the file again when it gets a signal
            while connection.execute("SELECT pg_conf_load_time()").fetchone() == before:
                time.sleep(0.01)

    @contextlib.contextmanager
    def new_database(self, prefix: str = "test") -> Iterator[str]:
        """Create an empty database, and drop it with its slots at the end; yields its name."""
        name = f"{prefix}_{os.getpid()}_{time.monotonic_ns()}"
        identifier = sql.Identifier(name)
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        try:
            yield name
        finally:
            if self.is_up:
                self._drop_database(name)

    def _drop_database(self, name: str) -> None:
        slots = "FROM pg_replication_slots WHERE database = %s"
        with self.connect() as connection:
            connection.execute(
                f"SELECT pg_terminate_backend(active_pid) {slots} AND active_pid IS NOT NULL",
                (name,),
            )
            deadline = time.monotonic() + STOP_S
            while time.monotonic() < deadline:
                try:
                    connection.execute(
                        f"SELECT pg_drop_replication_slot(slot_name) {slots}", [name]
                    )
                    break
                except psycopg.errors.ObjectInUse:
                    time.sleep(0.05)
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def programs_folder() -> Path:
    """The folder of the newest installed PostgreSQL's programs.

    Raises:
        NotInstalledError: There is none.
    """
    folders = [
        path.parent
        for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")
        if path.parent.parent.name.isdigit()
    ]
    if folders:
        return max(folders, key=lambda folder: int(folder.parent.name))
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    raise NotInstalledError("PostgreSQL is not installed (Debian: apt-get install postgresql-15)")


def _environment() -> dict[str, str]:
    """Without the locale and the zone that the tests run in."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _give(*paths: Path) -> None:
    """Give files to the server's user, if it is not ours."""
    for path in paths:
        if os.geteuid() == 0:
            shutil.chown(path, "postgres", "postgres")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
