# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB on 127.0.0.1 in a temporary folder, for tests; it stands for MySQL, too.

It has a binary log of rows, password logins over TCP and no fsync: ``kill -9`` of its process loses
nothing, because the operating system keeps what it wrote.
"""

import contextlib
import hashlib
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

import pymysql
from child_processes import LifeLine, as_user, kill_processes
from tls_certificates import ServerCertificate, create_server_certificate

START_S = 60
STOP_S = 30
SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "4711",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "ON",
    "gtid-domain-id": "1",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "16M",
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "performance-schema": "OFF",
    "skip-name-resolve": "ON",
}
ADMIN_SQL = (
    "SET SESSION sql_log_bin = 0;\n"
    "CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY PASSWORD '{password}';\n"
    "GRANT ALL ON *.* TO '{user}'@'%' WITH GRANT OPTION;\n"
)


class NotInstalledError(Exception):
    """The programs of MariaDB are not installed."""


class MariadbServer:
    """A MariaDB server as a child process; a context manager that starts and deletes it.

    Attributes:
        host, port, user, password: The login of a user with all privileges.
        certificate: The files of TLS; ``None`` without TLS.
    """

    host = "127.0.0.1"
    user = "admin"
    password = 'secret "of\\ the test ü'

    def __init__(
        self,
        *,
        settings: Mapping[str, str | None] | None = None,
        tls: Literal["off", "optional", "required"] = "off",
    ) -> None:
        """Create the server's files; :meth:`start` starts it.

        Args:
            settings: More options of the server's command line, without dashes; ``None`` removes
                one of :data:`SETTINGS`.
            tls: Whether the server offers TLS, or rejects connections without it.

        Raises:
            NotInstalledError: MariaDB is not installed.
        """
        self._program = server_program()
        self._install_program = _program("mariadb-install-db")
        self.port = _free_port()
        self.certificate: ServerCertificate | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._life_line: LifeLine | None = None
        self.settings: dict[str, str | None] = {**SETTINGS, **(settings or {})}
        # no folder of pytest: another user must be able to enter all of its parents
        self.folder = Path(tempfile.mkdtemp(prefix="changelane-mariadb-"))
        try:
            self._initialize(tls)
        except BaseException:
            self.close()
            raise

    def _initialize(self, tls: str) -> None:
        admin_file = self.folder / "admin.sql"
        # the hash of mysql_native_password: a character set of the file has no effect
        digest = hashlib.sha1(hashlib.sha1(self.password.encode()).digest()).hexdigest()
        admin_file.write_text(ADMIN_SQL.format(user=self.user, password=f"*{digest.upper()}"))
        _give(self.folder, admin_file)
        # in a shared tmpdir, the start of another server deletes the temporary tables of this one
        arguments = ["--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db"]
        arguments += ["--auth-root-authentication-method=normal", "--skip-log-bin"]
        arguments += ["--innodb-log-file-size=16M", f"--tmpdir={self.folder}"]
        installation = subprocess.run(
            [*as_user("mysql"), self._install_program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=_environment(),
            check=False,
        )
        if installation.returncode != 0:
            end = installation.stdout.decode(errors="replace")[-3000:]
            msg = f"mariadb-install-db failed ({installation.returncode}):\n{end}"
            raise RuntimeError(msg)
        if tls != "off":
            self.certificate = create_server_certificate(self.folder)
            _give(self.certificate.key, self.certificate.certificate)
            self.settings["ssl-key"] = str(self.certificate.key)
            self.settings["ssl-cert"] = str(self.certificate.certificate)
            self.settings["ssl-ca"] = str(self.certificate.root)
            self.settings["require-secure-transport"] = "ON" if tls == "required" else "OFF"

    # -- its life

    def start(self) -> None:
        """Start the server, and wait until it accepts connections.

        Raises:
            RuntimeError: It does not start; the message has the end of its log.
        """
        arguments = ["--no-defaults", f"--datadir={self.folder / 'data'}", f"--port={self.port}"]
        arguments += [f"--socket={self.folder / 'socket'}", f"--pid-file={self.folder / 'pid'}"]
        arguments += [f"--init-file={self.folder / 'admin.sql'}"]
        arguments += [f"--tmpdir={self.folder}"]
        settings = self.settings.items()
        arguments += [f"--{name}={value}" for name, value in settings if value is not None]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*as_user("mysql"), self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment(),
                start_new_session=True,
            )
        self._life_line = LifeLine(self._process.pid, signal.SIGKILL)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(pymysql.OperationalError):
                self.connect(connect_timeout=2).close()
                return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"MariaDB did not start: {self.log()[-2000:]}")

    def stop(self) -> None:
        """Stop the server in good order; its data stays."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget_process()

    def kill(self) -> None:
        """``kill -9`` the server; its data stays as it is."""
        if self._process is not None:
            kill_processes([self._process.pid])
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
    def login(self) -> dict[str, Any]:
        """The login of the user with all privileges, by the names of a source's options."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
        }

    def connect(
        self, database: str | None = None, **parameters: Any
    ) -> "pymysql.connections.Connection[Any]":
        """Connect as the user with all privileges, with autocommit."""
        if self.certificate is not None:
            parameters.setdefault("ssl_ca", str(self.certificate.root))
        else:
            parameters.setdefault("ssl_disabled", True)
        login = {"user": self.user, "password": self.password.encode(), "autocommit": True}
        return pymysql.connect(
            host=self.host, port=self.port, database=database, **{**login, **parameters}
        )

    def run(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Execute statements; return the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    @contextlib.contextmanager
    def new_database(self, prefix: str = "test") -> Iterator[str]:
        """Create an empty database, and drop it at the end; yields its name."""
        name = f"{prefix}_{os.getpid()}_{time.monotonic_ns()}"
        self.run(f"CREATE DATABASE `{name}`")
        try:
            yield name
        finally:
            if self.is_up:
                self.run(f"DROP DATABASE `{name}`")


def server_program() -> str:
    """The path of the installed MariaDB server.

    Raises:
        NotInstalledError: There is none.
    """
    return _program("mariadbd")


def _program(name: str) -> str:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    if program := shutil.which(name, path=path):
        return program
    raise NotInstalledError("MariaDB is not installed (Debian: apt-get install mariadb-server)")


def _environment() -> dict[str, str]:
    """Without the locale and the zone that the tests run in."""
    return {"PATH": f"{os.environ['PATH']}:/usr/sbin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _give(*paths: Path) -> None:
    """Give files to the server's user, if it is not ours."""
    for path in paths:
        if os.geteuid() == 0:
            shutil.chown(path, "mysql", "mysql")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
