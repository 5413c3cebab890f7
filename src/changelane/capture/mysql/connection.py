# SPDX-License-Identifier: Apache-2.0
"""Connections to MySQL and MariaDB, and the sentences of their errors, by their numbers."""

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, Protocol, Self, cast

import msgspec

from changelane.errors import ConfigError, MissingExtraError, UnreachableError


class Cursor(Protocol):
    """The part of pymysql's cursor that is in use; pymysql has no type information."""

    def execute(self, query: str, args: Sequence[object] | None = None) -> int: ...
    def fetchall(self) -> Sequence[tuple[Any, ...]]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...


class Connection(Protocol):
    """The part of pymysql's connection that is in use."""

    def cursor(self) -> Cursor: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


READ_TIMEOUT_S: Final = 60
_LOCK_TIMEOUT_S: Final = 10
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


class MysqlConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The login of a server.

    Attributes:
        host: One host name or address.
        password: Never in a text of this class, a log or an error.
        ssl_mode: The words of MySQL's clients and of Debezium.
        ssl_ca: A file with the certificates of trusted authorities; empty for those of the machine.
        ssl_cert, ssl_key: The files of a client's certificate.
        connect_timeout_s: Seconds until a server without an answer is unreachable.
        read_timeout_s: Seconds until a statement without an answer fails; ``None`` = never.
    """

    host: str
    user: str
    password: str = ""
    port: int = 3306
    ssl_mode: SslMode = "preferred"
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    connect_timeout_s: int = 10
    read_timeout_s: int | None = READ_TIMEOUT_S

    def __post_init__(self) -> None:
        """Reject a list of hosts, a missing user and invalid ports."""
        if "," in self.host or not self.host:
            raise ValueError("host is not one host name")
        if not self.user:
            raise ValueError("user is empty")
        if not 0 < self.port <= 65535:
            raise ValueError("port is not a number from 1 to 65535")

    def __repr__(self) -> str:
        return f"MysqlConnection({self.label!r})"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def label(self) -> str:
        """The connection as text, without the password."""
        return f"{self.user}@{self.address}"


def connect(options: MysqlConnection) -> Connection:
    """Connect with autocommit, UTF-8, the time zone UTC and a timeout of locks.

    Raises:
        ConfigError: The server rejects the login, or a file of TLS is wrong.
        UnreachableError: The server does not answer.
        MissingExtraError: pymysql, or a library that the login needs, is not installed.
    """
    try:
        import pymysql  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError("pymysql", "capture") from None
    try:
        connection = pymysql.connect(
            host=options.host,
            port=options.port,
            user=options.user,
            password=options.password.encode(),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=options.connect_timeout_s,
            read_timeout=options.read_timeout_s,
            write_timeout=READ_TIMEOUT_S,
            init_command=f"SET time_zone = '+00:00', lock_wait_timeout = {_LOCK_TIMEOUT_S}",
            program_name="changelane",
            **_tls_parameters(options),
        )
        return cast("Connection", connection)
    except pymysql.MySQLError as error:
        # without the original error, whose traceback may contain the password
        raise connection_error(error, options) from None
    except RuntimeError as error:
        if "cryptography" not in str(error):
            raise
        raise MissingExtraError("cryptography", "capture") from None


def _tls_parameters(options: MysqlConnection) -> dict[str, Any]:
    """Return pymysql's parameters of TLS.

    Raises:
        ConfigError: A file of certificates cannot be read.
    """
    match options.ssl_mode:
        case "disabled":
            return {"ssl_disabled": True}
        case "preferred":
            if not (options.ssl_ca or options.ssl_cert):
                return {}
    try:
        context = ssl.create_default_context(cafile=options.ssl_ca or None)
        # authorities that MySQL's own tools make lack extensions that strict checks want
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = options.ssl_mode == "verify_identity"
        if options.ssl_mode in {"preferred", "required"}:
            context.verify_mode = ssl.CERT_NONE
        if options.ssl_cert:
            context.load_cert_chain(options.ssl_cert, options.ssl_key or None)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"a file of ssl_ca, ssl_cert or ssl_key is not usable: {reason}"
        ) from None
    return {"ssl": context}


# -- errors

_ADDRESS_ERRORS: Final = (2002, 2003, 2005, 2013)
"""The client's own numbers: connections that fail before the login."""
_TLS_ERROR: Final = 2026
_REJECTED: Final = {
    1044: "{address} does not allow {user} to use the database",
    1045: "{address} rejects the user {user} or the password{tls}: correct them",
    1130: "{address} does not allow connections from this machine: create the user for its host",
    1251: "{address} uses a login that the client does not know: choose another plugin for {user}",
    1698: "{address} rejects the user {user} or the password{tls}: correct them",
    1862: "the password of {user} at {address} has expired: set a new one",
    2026: "{address} has no TLS, but ssl_mode: {ssl_mode} requires it: enable TLS there",
    2059: "{address} uses a login that the client does not know: choose another plugin for {user}",
    3118: "the account {user} at {address} is locked: unlock it",
    3159: "{address} rejects {user} without TLS: set ssl_mode: required",
    4151: "the account {user} at {address} is locked: unlock it",
}
_UNREACHABLE: Final = {
    1040: "{address} has no free connection: close connections, or increase max_connections",
    1053: "{address} starts or stops: try again in a moment",
    1129: "{address} blocks this machine after failed connections: FLUSH HOSTS there",
    1203: "{address} has no free connection for {user}: increase max_user_connections",
    1226: "{address} has no free connection for {user}: increase the limit of the user",
}


def connection_error(error: Exception, options: MysqlConnection) -> ConfigError:
    """Return the error for one of pymysql about a failed connection, without the password."""
    fields = {
        "address": options.address,
        "user": options.user,
        "ssl_mode": options.ssl_mode,
        "tls": ", or requires TLS" if options.ssl_mode == "disabled" else "",
    }
    number, message = _parts_of(error)
    if number in _REJECTED:
        return ConfigError(_REJECTED[number].format(**fields))
    if number in _UNREACHABLE:
        return UnreachableError(_UNREACHABLE[number].format(**fields))
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLError):
        return ConfigError(
            f"the TLS connection to {options.address} fails: check ssl_ca and the host name "
            "against the server's certificate, and ssl_cert and ssl_key if it wants one"
        )
    if isinstance(cause, socket.gaierror):
        return UnreachableError(f"the host name of {options.address} cannot be resolved")
    if isinstance(cause, TimeoutError):
        timeout = options.connect_timeout_s
        return UnreachableError(
            f"{options.address} does not answer in {timeout} s: check host, port and firewalls"
        )
    if number in _ADDRESS_ERRORS:
        return UnreachableError(
            f"{options.address} is not reachable: check host and port, and whether the server runs"
        )
    if options.password:
        message = message.replace(options.password, "***")
    return ConfigError(f"the connection to {options.address} fails: {message}")


def _parts_of(error: Exception) -> tuple[int, str]:
    """Return the number and the message of an error of pymysql."""
    number, message = (*error.args, 0, "")[:2] if len(error.args) > 1 else (0, str(error))
    return (number if isinstance(number, int) else 0), str(message)


ACCESS_DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1401, 1698})
"""The numbers of errors about privileges; 1401 is that of MySQL for ``XA RECOVER``."""
_LOST_CONNECTION: Final = frozenset({0, 1053, 1077, 1079, 2006, 2013, 2014, 2055})
"""Ends of the server or the connection; 0 for a connection that is closed on this side."""
_TIMEOUTS: Final = frozenset({1205, 1969, 3024})


@contextlib.contextmanager
def database_errors(doing: str) -> Iterator[None]:
    """Raise errors of statements as ours.

    Args:
        doing: The subject of the sentence, such as ``the check of the tables``.

    Raises:
        UnreachableError: The connection is lost.
        ConfigError: The server rejects the statement.
    """
    import pymysql

    try:
        yield
    except pymysql.MySQLError as error:
        number, _ = _parts_of(error)
        if number in _LOST_CONNECTION:
            raise UnreachableError(f"{doing} fails: the connection is lost") from None
        if number in ACCESS_DENIED:
            raise ConfigError(
                f"{doing} fails: the user lacks a privilege (error {number})"
            ) from None
        if number in _TIMEOUTS:
            raise ConfigError(f"{doing} fails: it waited longer than its timeout") from None
        raise ConfigError(f"{doing} fails: the server reports error {number}") from None


def read_rows(connection: Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Execute a statement and return its rows.

    Args:
        connection: The connection.
        statement: The statement, with ``%s`` for each value.
        values: The values; a percent sign in the statement is doubled only if there are any.
    """
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def read_if_allowed(connection: Connection, statement: str) -> list[tuple[Any, ...]] | None:
    """Return the rows of a statement; ``None`` if the user lacks a privilege or it is unknown."""
    import pymysql

    try:
        return read_rows(connection, statement)
    except pymysql.MySQLError as error:
        number, _ = _parts_of(error)
        if number in ACCESS_DENIED or number in _UNKNOWN:
            return None
        raise


def is_in_snapshot(connection: Connection, table: str) -> bool:
    """Whether the snapshot of an open transaction has the rows of a table.

    It lacks them if a statement has truncated, rebuilt or dropped the table since. From this call
    on, such statements wait for the end of the transaction.

    Args:
        connection: A connection in a transaction with a consistent snapshot.
        table: The quoted name of the table.
    """
    import pymysql

    try:
        read_rows(connection, f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - a quoted name
    except pymysql.MySQLError as error:
        number, _ = _parts_of(error)
        if number in _NOT_THE_TABLE:
            return False
        raise
    return True


_NOT_THE_TABLE: Final = frozenset({1146, 1412})
"""The numbers of the errors about a table that does not exist, or is newer than the snapshot."""
_UNKNOWN: Final = frozenset({1064, 1146, 1193, 1305, 1381})
"""Numbers of statements, tables, variables and functions that a version does not have, and of a
server without a binary log."""
