# SPDX-License-Identifier: Apache-2.0
"""Connections to PostgreSQL, and the sentences of their errors.

libpq reports a failed connection as text only, in the language of the server's ``lc_messages``; the
known English texts get a sentence with a fix, others are shown as they are. After the login, errors
have a code (SQLSTATE), which is independent of the language.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from changelane.errors import ConfigError, MissingExtraError, UnreachableError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

APPLICATION_NAME: Final = "changelane"
_STATEMENT_TIMEOUT_MS: Final = 60_000
"""Statements read the catalog only; one that waits longer is behind a lock."""
_KEEPALIVE: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds, seconds and a number: a lost network is an error after 25 seconds."""

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]


class PostgresConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The login of a database.

    Attributes:
        host: One host name or address; no list, because all connections must reach one server.
        password: Never in a text of this class, a log or an error.
        sslmode: The words of libpq.
        sslrootcert: A file with the certificates of trusted authorities; ``system`` for those of
            the machine.
        sslcert, sslkey: The files of a client's certificate.
        connect_timeout_s: Seconds until a server without an answer is unreachable.
    """

    host: str
    database: str
    user: str
    password: str = ""
    port: int = 5432
    sslmode: SslMode = "prefer"
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    connect_timeout_s: int = 10

    def __post_init__(self) -> None:
        """Reject a list of hosts, missing names and invalid ports."""
        if "," in self.host or not self.host:
            raise ValueError("host is not one host name")
        if not self.database or not self.user:
            raise ValueError("database or user is empty")
        if not 0 < self.port <= 65535:
            raise ValueError("port is not a number from 1 to 65535")

    def __repr__(self) -> str:
        return f"PostgresConnection({self.label!r})"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def label(self) -> str:
        """The connection as text, without the password."""
        return f"{self.user}@{self.address}/{self.database}"


def connect(options: PostgresConnection, *, is_replication: bool = False) -> "Connection":
    """Connect with autocommit, an empty ``search_path`` and a timeout of statements.

    Neither environment variables nor a password file of libpq supply the login, because the engine
    in its own process does not know them.

    Args:
        options: The login.
        is_replication: Open a connection of the replication protocol, which also takes SQL.

    Raises:
        ConfigError: The server rejects the login, the database or the kind of connection.
        UnreachableError: The server does not answer.
        MissingExtraError: psycopg is not installed.
    """
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("psycopg", "capture") from None
    parameters: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "dbname": options.database,
        "user": options.user,
        "password": options.password,  # an empty one, too: it hides PGPASSWORD
        "passfile": os.devnull,
        "sslmode": options.sslmode,
        "connect_timeout": options.connect_timeout_s,
        "application_name": APPLICATION_NAME,
        "client_encoding": "utf8",
        **_KEEPALIVE,
        **{
            name: value
            for name in ("sslrootcert", "sslcert", "sslkey")
            if (value := getattr(options, name))
        },
        **({"replication": "database"} if is_replication else {}),
    }
    try:
        connection = psycopg.connect(autocommit=True, **parameters)
    except psycopg.Error as error:
        # without the original error, whose text may contain the password
        raise connection_error(str(error), options) from None
    except UnicodeError:
        raise ConfigError(f"the login of {options.address} is not valid Unicode") from None
    if not is_replication:
        with database_errors(f"the connection to {options.address}"):
            # names are resolved in the system catalog only: no object of a user runs
            connection.execute(
                "SELECT pg_catalog.set_config('search_path', '', false), "
                f"pg_catalog.set_config('statement_timeout', '{_STATEMENT_TIMEOUT_MS}', false)"
            )
    return connection


# -- errors

_UNREACHABLE: Final = (
    (
        r"Connection refused|No route to host|Network is unreachable|Connection reset",
        "PostgreSQL at {address} is not reachable: check host and port, and whether it runs",
    ),
    (
        r"failed to resolve host|could not translate host name|Name or service not known",
        "the host name of {address} cannot be resolved",
    ),
    (
        r"timeout expired|timed out",
        "PostgreSQL at {address} does not answer in {timeout} s: check host, port and firewalls",
    ),
    (
        r"(?:starting up|shutting down|in recovery mode|not yet accepting connections)$",
        "PostgreSQL at {address} starts or stops: try again in a moment",
    ),
    (
        r"too many clients already|remaining connection slots are reserved|too many connections",
        (
            "PostgreSQL at {address} has no free connection for {user}: close connections, or "
            "increase max_connections or the limit of the role"
        ),
    ),
)
_REJECTED: Final = (
    (
        r"password authentication failed|authentication failed for user",
        "PostgreSQL at {address} rejects the user {user} or the password: correct them",
    ),
    (
        r"no password supplied|empty password",
        "PostgreSQL at {address} requires a password for {user}: set password",
    ),
    (r'database ".*" does not exist', "there is no database {database} at {address}"),
    (r'role ".*" does not exist', "there is no user {user} at {address}"),
    (
        r"no pg_hba\.conf entry.*no encryption|pg_hba\.conf rejects.*no encryption",
        (
            "PostgreSQL at {address} rejects {user} without TLS: set sslmode: require, or "
            "verify-full with sslrootcert"
        ),
    ),
    (
        r"pg_hba\.conf",
        (
            "pg_hba.conf of the server at {address} does not allow {user} to use {database}: add a "
            "line"
        ),
    ),
    (
        r"server does not support SSL",
        "PostgreSQL at {address} has no TLS, but sslmode: {sslmode} requires it: enable ssl there",
    ),
    (
        r"root certificate file",
        "sslmode: {sslmode} needs the certificate of the authority: set sslrootcert to its file",
    ),
    (
        r"does not match host name",
        "the certificate of {address} is for another host: use the host name of the certificate",
    ),
    (
        r"certificate|SSL error|SSL SYSCALL|tlsv1|sslv3",
        (
            "the TLS connection to {address} fails: check sslrootcert against the authority of the "
            "server's certificate, and sslcert and sslkey if it wants one"
        ),
    ),
    (
        r"replication role|start WAL sender|REPLICATION",
        "the user {user} has no privilege for replication",
    ),
    (
        r"max_wal_senders|standby connections",
        "PostgreSQL at {address} has no free WAL sender: increase max_wal_senders",
    ),
)


def connection_error(message: str, options: PostgresConnection) -> ConfigError:
    """Return the error for libpq's message about a failed connection, without the password."""
    fields = {
        "address": options.address,
        "user": options.user,
        "database": options.database,
        "sslmode": options.sslmode,
        "timeout": options.connect_timeout_s,
    }
    for faults, kind in ((_UNREACHABLE, UnreachableError), (_REJECTED, ConfigError)):
        for pattern, sentence in faults:
            if re.search(pattern, message, re.MULTILINE):
                return kind(sentence.format(**fields))
    text = " ".join(message.partition("\n")[0].split())
    if options.password:
        text = text.replace(options.password, "***")
    return ConfigError(f"the connection to PostgreSQL at {options.address} fails: {text}")


_LOST_CONNECTION: Final = ("08", "57P01", "57P02", "57P03")
"""The class of broken connections, and the ends of a server (SQLSTATE)."""
_SENTENCES: Final = {
    "42501": "the user lacks a privilege",
    "53400": "a limit of the server is reached",
    "57014": "it waited longer than its timeout",
    "55P03": "it waited longer than its timeout",
    "25006": "the server is read-only",
}


@contextlib.contextmanager
def database_errors(doing: str) -> Iterator[None]:
    """Raise errors of statements as ours.

    Args:
        doing: The subject of the sentence, such as ``the creation of slot shop``.

    Raises:
        UnreachableError: The connection is lost.
        ConfigError: The server rejects the statement.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        code = error.sqlstate or ""
        if code.startswith(_LOST_CONNECTION) or (
            not code and isinstance(error, psycopg.OperationalError)
        ):
            raise UnreachableError(f"{doing} fails: the connection to PostgreSQL is lost") from None
        text = error.diag.message_primary or type(error).__name__
        reason = _SENTENCES.get(code)
        raise ConfigError(
            f"{doing} fails: {f'{reason} ({text})' if reason else f'{text} (code {code})'}"
        ) from None
